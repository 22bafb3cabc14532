from spacetime_en._util.machine import cores, free_memory, free_room, in_words


def test_what_there_is(tmp_path):
    assert cores() >= 1
    assert free_memory() > 1 << 20
    assert free_room(tmp_path / "not" / "there") > 1 << 20


def test_numbers_of_bytes_for_people():
    assert in_words(0) == "0 bytes"
    assert in_words(999) == "999 bytes"
    assert in_words(1_230_000) == "1.23 MB"
    assert in_words(5 * 10**21) == "5e+03 EB"
