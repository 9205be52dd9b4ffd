"""The system's errors in plain words."""

import errno

from gpuplan.remote.words import system_words


def test_a_file_that_may_not_be_written_is_no_matter_of_a_firewall() -> None:
    assert "firewall" in system_words(PermissionError(errno.EPERM, "x"))
    assert "firewall" not in system_words(PermissionError(errno.EPERM, "x", "/etc/known_hosts"))
