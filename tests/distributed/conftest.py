"""Scripts that tests start are not looked through for examples: torch may be too old for one."""

collect_ignore_glob = ["*_run.py"]
