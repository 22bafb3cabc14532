"""Progress bars are drawn only on terminals; other packages are silenced only in the block."""

import logging

from spacetime_en._util.progress import progress_bar, silenced


def test_without_a_terminal_nothing_is_drawn(capsys):
    with progress_bar("reading", 3) as advance:
        advance(3)
    assert capsys.readouterr() == ("", "")


def test_loggers_speak_of_errors_only_until_the_block_ends(caplog):
    logger = logging.getLogger("somebody.elses")
    logger.setLevel(logging.INFO)
    with silenced("somebody.elses"):
        logger.warning("chatter")
        logger.error("trouble")
    logger.info("after")
    assert [record.message for record in caplog.records] == ["trouble", "after"]
