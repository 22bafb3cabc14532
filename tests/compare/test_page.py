"""The report is one self-contained file."""

import json
import re

from spacetime_en.compare.page import html_report


def test_the_page_holds_its_data_and_asks_the_network_for_nothing():
    data = {"what": "a </script> in the text", "tables": [], "facts": {"a": "ü"}}
    made = html_report(data)
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', made, re.S)
    assert json.loads(text) == data
    addresses = set(re.findall(r"https?://[^\"'\s)]+", made))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, never fetched
    assert not re.findall(r"<(?:link|img|iframe)\b|\bsrc=|@import|url\(|fetch\(", made)
    assert "/*" + "DATA" not in made
    assert "/*" + "SCRIPT" not in made
