"""Files and folders are opened in one place (docs/decisions/0009-how-files-are-opened.md)."""

import re
import sys
import unittest

from rules import RuleTest, broken, cpp_files, line_of, repository, without_comments

# What opens, makes, renames or removes by a path.
OPENS = re.compile(
    r"std::[io]?fstream\b|\bfopen\("
    r"|\bopendir\(|(?<![\w.>])::(?:open|openat|creat|truncate|rename|renameat2?|unlink|mkdir|"
    r"mkdirat|unlinkat|link|symlink)\(|\b(?:recursive_)?directory_iterator\b|"
    r"\b(?:fs|filesystem)::(?:remove|remove_all|rename|create_director(?:y|ies)|copy|copy_file|resize_file)\("
)
CHECKED = ("api/", "base/", "models/", "pipeline/", "server/")

# What opens what no job spec has named, and why.
EXCEPTIONS = {
    # The one place.
    "base/files/open_file.cpp": "opens",
    "base/files/without_links.cpp": "opens",
    "base/files/files.cpp": "names in a folder that open_folder_of() has opened",
    # The kernel's own files.
    "base/cores.cpp": "/proc",
    "base/this_machine.cpp": "/proc",
    "models/ranks/meeting_point.cpp": "/proc",
    "models/training/device_memory.cpp": "/proc, /sys",
    "server/jobs/checks/estimate_process.cpp": "/proc",
    "server/jobs/table/slot_plan.cpp": "/sys",
    "server/supervisor/child_process.cpp": "/dev/null",
    "server/supervisor/oom_kills.cpp": "/proc, /sys",
    "server/support/process_metrics.cpp": "/proc",
    # What somebody names on his own command line, with his own rights.
    "pipeline/graph/trace_writer.cpp": "--trace, which no spec names",
    "server/cli/files.cpp": "the command line's",
    "server/cli/jobs/job_download.cpp": "the command line's",
    "server/cli/store_command.cpp": "the command line's",
    "server/settings/spec_docs_main.cpp": "the command line's",
    # The service's data folder, which no spec may name.
    "server/cli/serve_command.cpp": "the data folder",
    "server/jobs/store/job_logs.cpp": "the data folder",
    "server/openai/file_store.cpp": "the data folder",
    "server/openai/file_upload.cpp": "the data folder",
    "server/security/audit_log.cpp": "the data folder",
    "server/security/key_file.cpp": "the data folder",
    "server/supervisor/token_folder.cpp": "the launcher's folder, which the administrator names",
    # What a job wrote, read by the service.
    "server/jobs/routes/artifact_folder.cpp": "folder by folder, without links",
    "server/openai/model_routes.cpp": "outputs in the data folder",
}


def opens_rule(files):
    for path, text in cpp_files(files).items():
        if not path.startswith(CHECKED) or path in EXCEPTIONS:
            continue
        clean = without_comments(text)
        for match in OPENS.finditer(clean):
            yield f"{path}:{line_of(clean, match.start())}: {match.group(0)} goes past base/files/open_file.hpp"


def needless_exception_rule(files):
    for path in EXCEPTIONS:
        if path not in files or not OPENS.search(without_comments(files[path])):
            yield f"{path}:1: is an exception and opens nothing"


class OpensRules(RuleTest):
    def test_whatever_opens_elsewhere_is_refused(self):
        for line in (
            "std::ifstream in(file);",
            "const int fd = ::open(path.c_str(), O_RDONLY);",
            'FILE* file = std::fopen(path, "r");',
            "fs::remove_all(folder);",
            "std::filesystem::create_directories(folder, code);",
            "for (fs::directory_iterator entry(folder); ;) {}",
            "::truncate(path, 0);",
        ):
            self.refuse(opens_rule, {"pipeline/data/x.cpp": "\n" + line}, "pipeline/data/x.cpp:2")

    def test_other_words_are_no_opens(self):
        for line in (
            "MappedFile::open(path);",
            "// std::ifstream",
            "open_file(path, O_RDONLY);",
            "remove_tree(folder);",
        ):
            self.accept(opens_rule, {"pipeline/data/x.cpp": line})
        self.accept(opens_rule, {"tests/x.cpp": "std::ifstream in(file);", "base/files/open_file.cpp": "::open(p, 0);"})

    def test_an_exception_that_opens_nothing_is_refused(self):
        files = dict.fromkeys(EXCEPTIONS, "std::ifstream in(file);")
        self.accept(needless_exception_rule, files)
        self.refuse(needless_exception_rule, {**files, "base/cores.cpp": "int cores;"}, "base/cores.cpp:1")

    def test_the_repository(self):
        self.assertEqual(broken([opens_rule, needless_exception_rule], repository()), [])


if __name__ == "__main__":
    sys.exit(unittest.main())
