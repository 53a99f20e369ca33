"""Who may include whom."""

import graphlib
import re
import sys
import unittest

from rules import RuleTest, broken, cpp_files, header, line_of, repository, without_comments

BELOW_SERVER = ["base/", "pipeline/core/", "pipeline/async/", "net/", "api/"]
BELOW_JOBS = [
    *[*BELOW_SERVER, "server/support/", "server/settings/", "server/http/", "server/security/"],
    *["server/protocol/", "server/supervisor/"],
]
# What the manager of jobs and the routes are built of, and must not know.
PARTS_OF_JOBS = [f"server/jobs/{part}/" for part in ("checks", "metrics", "store", "table")]

# Which folders the files of a folder may include; the longest matching prefix counts.
LAYERS = {
    "base/": ["base/"],
    "pipeline/core/": ["base/", "pipeline/core/"],
    "pipeline/async/": ["base/", "pipeline/core/", "pipeline/async/"],
    # Bytes, TLS, names and hosts, HTTP messages, for the server and for clients.
    "net/": ["base/", "pipeline/core/", "pipeline/async/", "net/"],
    "pipeline/teacher/": ["base/", "pipeline/core/", "pipeline/async/", "net/", "pipeline/store/", "pipeline/teacher/"],
    "pipeline/store/": ["base/", "pipeline/core/", "pipeline/async/", "pipeline/store/"],
    "pipeline/data/": ["base/", "pipeline/core/", "pipeline/async/", "pipeline/data/"],
    "pipeline/graph/": ["base/", "pipeline/"],
    "models/": ["base/", "pipeline/", "models/"],
    "models/checkpoint/": ["base/", "pipeline/core/", "models/checkpoint/"],
    "api/": ["base/", "pipeline/core/", "api/"],
    # support <- http <- security, protocol <- supervisor, jobs <- cli; the worker's program and the teacher's beside
    # them.
    "server/support/": ["base/", "pipeline/async/failure_message.hpp", "server/support/"],
    # The settings of the service, read by whoever composes it. Jobs and webhooks take their sections, the other
    # rooms have options of their own.
    "server/settings/": [*BELOW_SERVER, "server/support/", "server/settings/"],
    "server/http/": [*BELOW_SERVER, "server/support/", "server/http/"],
    "server/security/": [*BELOW_SERVER, "server/support/", "server/http/", "server/security/"],
    "server/protocol/": [*BELOW_SERVER, "server/support/", "server/protocol/"],
    "server/supervisor/": [*BELOW_SERVER, "server/support/", "server/protocol/", "server/supervisor/"],
    # What a run will come to and what keeps it from beginning, by what the run itself reads and refuses.
    "server/estimate/": [
        *["base/", "pipeline/core/", "pipeline/data/", "models/families/", "models/losses/", "models/optimizers/"],
        *["api/", "server/estimate/", "pipeline/teacher/remote_teacher.hpp", "server/worker/export_owner.hpp"],
        *["pipeline/store/manifest.hpp", "server/worker/generate_vocabulary.hpp"],
        *["server/worker/starting_point.hpp", "server/worker/training_data.hpp"],
    ],
    "server/jobs/": [*BELOW_JOBS, "pipeline/store/", "server/estimate/", "server/jobs/"],
    **{part: [*BELOW_JOBS, "server/estimate/", *PARTS_OF_JOBS] for part in PARTS_OF_JOBS},
    "server/openai/": [*BELOW_JOBS, "server/jobs/", "server/openai/"],
    "server/webhooks/": [*BELOW_JOBS, "server/jobs/", "server/webhooks/"],
    # What a teacher is served with is said on the command lines of both programs.
    "server/cli/": [
        *[*BELOW_JOBS, "server/settings/", "server/jobs/", "server/cli/", "server/teacher/teacher_options.hpp"],
        *["pipeline/data/", "pipeline/store/", "server/estimate/", "server/openai/", "server/webhooks/"],
    ],
    "server/teacher/": [
        *["base/", "pipeline/", "models/", "api/", "server/support/", "server/http/", "server/teacher/"],
        *["net/tls_context.hpp", "server/security/", "server/supervisor/command.hpp"],
    ],
    "server/sinks/": ["base/", "net/", "pipeline/", "api/", "server/sinks/"],
    "server/worker/": [
        *["base/", "pipeline/", "models/", "api/"],
        *["server/support/", "server/protocol/", "server/teacher/", "server/sinks/", "server/worker/"],
        *["server/supervisor/command.hpp", "server/supervisor/worker_environment.hpp"],
    ],
    "bench/": ["base/", "pipeline/", "models/", "api/", "server/", "bench/"],
    "tests/": ["base/", "net/", "pipeline/", "models/", "api/", "server/", "bench/", "tests/"],
    "cmake/": [],
}
GENERATED = {"distilld_version.hpp"}

# (file, what it includes) that the table does not allow and that is to be mended.
EXCEPTIONS = set()

# What core must do without: it is given the time and everything else it needs.
IMPURE = re.compile(
    r"<(boost/(asio|beast)|torch/|ATen/|c10/|spdlog/|prometheus/|openssl/|fstream|iostream|cstdio|thread|mutex|future"
    r"|condition_variable|unistd\.h|fcntl\.h|sys/|netinet/|poll\.h)"
)

TORCH = re.compile(r"<(torch|ATen|c10)/")
TORCH_ALLOWED = ("models/", "server/worker/", "server/teacher/", "bench/", "tests/")
TORCH_REFUSED = ("models/checkpoint/",)
BEAST = re.compile(r"<boost/beast")
BEAST_ALLOWED = (
    *("net/", "server/http/", "server/cli/", "tests/", "bench/"),
    "cmake/boost_beast_src.cpp",
)
WITHOUT_CIRCLES = ("server/jobs/",)
# What a file includes, itself or through headers of ours, when it names it. A header of a library that brings it today
# may do without it tomorrow, and a precompiled header or the source before it in a batch hides that it is missing.
OWN_INCLUDES = {
    "algorithm": r"std::(ranges::)?(sort|stable_sort|find(_if|_if_not)?|(all|any|none)_of|copy(_n|_if)?|transform|min"
    r"|max|clamp|fill|replace|lower_bound|upper_bound|equal|mismatch|unique|reverse|count(_if)?)\(",
    "array": r"std::array<",
    "atomic": r"std::atomic(_\w+|<)",
    "charconv": r"std::(from|to)_chars\(",
    "cmath": r"std::(sqrt|exp|log|log2|pow|isfinite|isnan|isinf|floor|ceil|round|lround|fabs)\(",
    "condition_variable": r"std::condition_variable",
    "cstring": r"std::(mem(cpy|cmp|move|set)|str(len|cmp|error))\(",
    "deque": r"std::deque<",
    "exception": r"std::(exception_ptr|current_exception|rethrow_exception)\b",
    "filesystem": r"std::filesystem::",
    "fstream": r"std::[io]?fstream\b",
    "functional": r"std::(move_only_)?function<",
    "future": r"std::(future|promise|packaged_task|async)\b[<(]",
    "map": r"std::(multi)?map<",
    "memory": r"std::(unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared)\b",
    "mutex": r"std::(mutex|lock_guard|scoped_lock|unique_lock|once_flag)\b",
    "numeric": r"std::(accumulate|iota|reduce|gcd)\(",
    "optional": r"std::(optional<|nullopt\b)",
    "random": r"std::(mt19937(_64)?|\w+_distribution)\b",
    "set": r"std::(multi)?set<",
    "span": r"std::span<",
    "sstream": r"std::[io]?stringstream\b",
    "thread": r"std::(j?thread|this_thread)\b",
    "tuple": r"std::(tuple<|tie\(|make_tuple\()",
    "unordered_map": r"std::unordered_map<",
    "unordered_set": r"std::unordered_set<",
    "utility": r"std::(move|exchange|pair|forward|to_underlying)\b[<(]",
    "variant": r"std::(variant<|holds_alternative|get_if|visit\()",
    "vector": r"std::vector<",
    "boost/asio/co_spawn.hpp": r"asio::co_spawn\(",
    "boost/asio/dispatch.hpp": r"asio::dispatch\(",
    "boost/asio/post.hpp": r"asio::post\(",
    "boost/asio/steady_timer.hpp": r"asio::steady_timer\b",
}
LOGGER = re.compile(r"<(spdlog|fmt)/")
LOGGER_ALLOWED = ("server/support/",)

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"][^>"]+[>"])', re.MULTILINE)


def includes(text):
    """(line number, '<name>' or '"name"') of each include."""
    clean = without_comments(text)
    return [(line_of(clean, match.start(1)), match.group(1)) for match in INCLUDE.finditer(clean)]


def folders_rule(files):
    for path, text in cpp_files(files).items():
        layer = max((folder for folder in LAYERS if path.startswith(folder)), key=len, default=None)
        if layer is None:
            yield f"{path}:1: lies in no folder of design"
            continue
        for line, name in includes(text):
            if name.startswith("<"):
                continue
            target = name.strip('"')
            if target in GENERATED and not path.startswith("pipeline/core/"):
                continue
            if "/" not in target or target.startswith("."):
                yield f"{path}:{line}: {name} must be written from the repository's root"
            elif not target.startswith(tuple(LAYERS[layer])) and (path, target) not in EXCEPTIONS:
                yield f"{path}:{line}: {layer} may not include {name}"


def core_is_pure_rule(files):
    for path, text in cpp_files(files).items():
        if not path.startswith("pipeline/core/"):
            continue
        for line, name in includes(text):
            if IMPURE.match(name):
                yield f"{path}:{line}: pipeline/core may not include {name}"
        clean = without_comments(text)
        for match in re.finditer(r"::now\s*\(", clean):
            yield f"{path}:{line_of(clean, match.start())}: pipeline/core may not read the clock"


def reach(files, pattern):
    """{path: how} of the files that include what matches, themselves or through headers of ours."""
    cpp = cpp_files(files)
    reached = {}
    for path, text in cpp.items():
        for line, name in includes(text):
            if pattern.match(name):
                reached.setdefault(path, (line, name))
    grown = True
    while grown:
        grown = False
        for path, text in cpp.items():
            if path in reached:
                continue
            for line, name in includes(text):
                if name.strip('"') in reached:
                    reached[path] = (line, name)
                    grown = True
                    break
    return reached


def confined(files, pattern, allowed, what, refused=()):
    for path, (line, name) in reach(files, pattern).items():
        if not path.startswith(allowed) or (refused and path.startswith(refused)):
            yield f"{path}:{line}: {name} brings {what} in here"


def torch_rule(files):
    return confined(files, TORCH, TORCH_ALLOWED, "libtorch", TORCH_REFUSED)


def beast_rule(files):
    return confined(files, BEAST, BEAST_ALLOWED, "Beast")


def logger_rule(files):
    return confined(files, LOGGER, LOGGER_ALLOWED, "spdlog")


def torch_meets_logger_rule(files):
    torch, logger = reach(files, TORCH), reach(files, LOGGER)
    for path in sorted(torch.keys() & logger.keys()):
        yield f"{path}:{logger[path][0]}: libtorch and spdlog meet in one file"


def models_do_not_log_rule(files):
    for path, text in cpp_files(files).items():
        if path.startswith("models/"):
            for line, name in includes(text):
                if name.startswith('"server/') or LOGGER.match(name):
                    yield f"{path}:{line}: models/ may not include {name}"


def circles_rule(files):
    """A source and its header count as one: neither uses, however far around, what uses it."""
    graph = {}
    for path, text in cpp_files(files).items():
        if path.startswith(WITHOUT_CIRCLES):
            used = {name.strip('"').rsplit(".", 1)[0] for _, name in includes(text) if name.startswith('"')}
            graph.setdefault(path.rsplit(".", 1)[0], set()).update(used)
    for own, used in graph.items():
        used.discard(own)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        circle = error.args[1]
        yield f"{circle[0]}.hpp:1: stands in a circle of includes: {' -> '.join(circle)}"


def own_includes_rule(files):
    patterns = {f"<{name}>": re.compile(pattern) for name, pattern in OWN_INCLUDES.items()}
    cpp = cpp_files(files)
    direct = {path: {name for _, name in includes(text)} for path, text in cpp.items()}
    for path, text in cpp.items():
        mine, todo = set(), [path]
        while todo:
            more = direct.get(todo.pop(), set()) - mine
            mine |= more
            todo += [name.strip('"') for name in more]
        clean = without_comments(text)
        for name, pattern in patterns.items():
            if name not in mine and (match := pattern.search(clean)):
                yield f"{path}:{line_of(clean, match.start())}: {match.group(0)} needs #include {name}"


RULES = [
    folders_rule,
    own_includes_rule,
    circles_rule,
    core_is_pure_rule,
    torch_rule,
    beast_rule,
    logger_rule,
    torch_meets_logger_rule,
    models_do_not_log_rule,
]


class RulesCanFail(RuleTest):
    def test_folders(self):
        core = {"pipeline/core/a.hpp": header('#include "pipeline/core/b.hpp"', "#include <string>")}
        self.accept(folders_rule, core)
        for own, other in [
            ("pipeline/core", "pipeline/async"),
            ("pipeline/core", "api"),
            ("pipeline/async", "pipeline/data"),
            ("pipeline/data", "pipeline/teacher"),
            ("pipeline/data", "pipeline/graph"),
            ("pipeline/store", "pipeline/teacher"),
            ("pipeline/store", "pipeline/data"),
            ("pipeline/graph", "models"),
            ("pipeline/graph", "server"),
            ("models", "server"),
            ("models", "api"),
            ("api", "server"),
            ("api", "models"),
            ("api", "pipeline/graph"),
            ("base", "pipeline/core"),
            ("base", "api"),
            ("models/checkpoint", "pipeline/graph"),
            ("models/checkpoint", "models/weights"),
            ("server/support", "server/http"),
            ("server/http", "server/jobs"),
            ("server/http", "server/protocol"),
            ("server/protocol", "server/supervisor"),
            ("server/supervisor", "server/http"),
            ("server/supervisor", "server/jobs"),
            ("server/jobs", "server/cli"),
            ("server/jobs/table", "server/jobs"),
            ("server/jobs/store", "server/jobs/routes"),
            ("server/cli", "server/worker"),
            ("server/cli", "server/teacher"),
            ("server/cli", "models"),
            ("server/worker", "server/supervisor"),
            ("server/worker", "server/http"),
            ("server/teacher", "server/worker"),
            ("server/teacher", "server/protocol"),
            ("server/cli", "tests"),
            ("server/jobs", "bench"),
        ]:
            with self.subTest(own=own, other=other):
                self.refuse(folders_rule, {f"{own}/a.cpp": f'\n#include "{other}/b.hpp"\n'}, f"{own}/a.cpp:2")
        for own, other in [
            ("pipeline/data", "pipeline/async"),
            ("pipeline/graph", "pipeline/teacher"),
            ("pipeline/teacher", "pipeline/store"),
            ("models/network", "pipeline/graph"),
            ("api", "pipeline/core"),
            ("server/supervisor", "server/protocol"),
            ("server/jobs", "server/supervisor"),
            ("server/jobs/routes", "server/jobs/store"),
            ("server/jobs/table", "server/jobs/checks"),
            ("server/cli", "server/jobs"),
            ("server/worker", "server/teacher"),
            ("server/worker", "models/training"),
            ("tests/unit/core", "pipeline/core"),
        ]:
            with self.subTest(own=own, other=other):
                self.accept(folders_rule, {f"{own}/a.cpp": f'#include "{other}/b.hpp"\n'})
        self.refuse(folders_rule, {"api/a.cpp": '#include "b.hpp"\n'}, "api/a.cpp:1")
        self.refuse(folders_rule, {"api/a.cpp": '#include "../api/b.hpp"\n'}, "api/a.cpp:1")
        self.refuse(folders_rule, {"elsewhere/a.cpp": "", "server/a.cpp": ""}, "elsewhere/a.cpp:1", "server/a.cpp:1")
        self.accept(folders_rule, {"server/cli/a.cpp": '#include "distilld_version.hpp"\n'})
        self.accept(folders_rule, {"models/a.cpp": '// #include "server/b.hpp"\n/*\n#include "server/b.hpp"\n*/\n'})

    def test_circles(self):
        line = {
            "server/jobs/a.cpp": '#include "server/jobs/a.hpp"\n#include "server/jobs/b.hpp"\n',
            "server/jobs/b.hpp": "",
        }
        self.accept(circles_rule, line)
        back = {"server/jobs/b.cpp": '#include "server/jobs/a.hpp"\n'}
        found = list(circles_rule({**line, **back}))
        self.assertEqual(len(found), 1)
        self.assertIn("stands in a circle of includes: server/jobs/", found[0])
        self.accept(circles_rule, {name.replace("jobs", "http"): text for name, text in {**line, **back}.items()})

    def test_own_includes(self):
        source = {"api/a.cpp": '#include "api/a.hpp"\n\nint f(int n) {\n    return std::max(n, 0);\n}\n'}
        self.refuse(own_includes_rule, {**source, "api/a.hpp": header("#include <vector>")}, "api/a.cpp:4")
        through = {"api/a.hpp": header('#include "api/b.hpp"'), "api/b.hpp": header("#include <algorithm>")}
        self.accept(own_includes_rule, {**source, **through})
        self.accept(own_includes_rule, {"api/a.cpp": "// std::max(a, b)\nauto maximum = std::maximum(1);\n"})

    def test_core_is_pure(self):
        for name in ["boost/asio/awaitable.hpp", "boost/beast.hpp", "torch/torch.h", "fstream", "thread", "sys/stat.h"]:
            with self.subTest(name=name):
                self.refuse(core_is_pure_rule, {"pipeline/core/a.cpp": f"#include <{name}>\n"}, "pipeline/core/a.cpp:1")
        clock = "auto t =\n    std::chrono::steady_clock::now ();\n"
        self.refuse(core_is_pure_rule, {"pipeline/core/a.cpp": clock}, "pipeline/core/a.cpp:2")
        self.accept(core_is_pure_rule, {"pipeline/core/a.cpp": "#include <chrono>\n// ::now() is the caller's\n"})
        self.accept(core_is_pure_rule, {"pipeline/async/a.cpp": clock + "#include <boost/asio.hpp>\n"})

    def test_torch(self):
        for name in ["torch/torch.h", "ATen/ATen.h", "c10/util/Half.h"]:
            files = {"pipeline/graph/a.cpp": f"#include <{name}>\n"}
            self.refuse(torch_rule, files, "pipeline/graph/a.cpp:1")
        checkpoint = {"models/checkpoint/a.cpp": "#include <torch/torch.h>\n"}
        self.refuse(torch_rule, checkpoint, "models/checkpoint/a.cpp:1")
        through = {
            "models/a.hpp": header("#include <torch/torch.h>"),
            "models/b.hpp": header('#include "models/a.hpp"'),
            "server/cli/c.cpp": '#include "models/b.hpp"\n',
        }
        self.refuse(torch_rule, through, "server/cli/c.cpp:1")
        self.accept(torch_rule, {**through, "server/cli/c.cpp": "", "server/worker/d.cpp": '#include "models/b.hpp"\n'})

    def test_beast(self):
        self.refuse(beast_rule, {"api/a.hpp": header("#include <boost/beast/http.hpp>")}, "api/a.hpp:2")
        self.refuse(beast_rule, {"server/jobs/a.cpp": "#include <boost/beast.hpp>\n"}, "server/jobs/a.cpp:1")
        through = {
            "server/http/a.hpp": header("#include <boost/beast/core.hpp>"),
            "server/jobs/b.cpp": '#include "server/http/a.hpp"\n',
        }
        self.refuse(beast_rule, through, "server/jobs/b.cpp:1")
        protocol = {"pipeline/teacher/protocols/a.cpp": "#include <boost/beast.hpp>\n"}
        self.refuse(beast_rule, protocol, "pipeline/teacher/protocols/a.cpp:1")
        self.accept(beast_rule, {"net/a.cpp": "#include <boost/beast.hpp>\n"})

    def test_logger(self):
        self.refuse(logger_rule, {"server/jobs/a.cpp": "#include <spdlog/spdlog.h>\n"}, "server/jobs/a.cpp:1")
        self.accept(logger_rule, {"server/support/log.cpp": "#include <spdlog/spdlog.h>\n"})

    def test_torch_meets_logger(self):
        files = {
            "server/support/log_impl.hpp": header("#include <spdlog/spdlog.h>"),
            "models/a.hpp": header("#include <torch/torch.h>"),
            "server/worker/c.cpp": '#include "models/a.hpp"\n#include "server/support/log_impl.hpp"\n',
        }
        self.refuse(torch_meets_logger_rule, files, "server/worker/c.cpp:2")
        self.accept(torch_meets_logger_rule, {**files, "server/worker/c.cpp": '#include "models/a.hpp"\n'})

    def test_models_do_not_log(self):
        self.refuse(models_do_not_log_rule, {"models/a.cpp": '#include "server/support/log.hpp"\n'}, "models/a.cpp:1")
        self.refuse(models_do_not_log_rule, {"models/a.cpp": "#include <spdlog/spdlog.h>\n"}, "models/a.cpp:1")
        self.accept(models_do_not_log_rule, {"models/a.cpp": '#include "models/b.hpp"\n'})


class Repository(unittest.TestCase):
    def test_keeps_the_rules(self):
        files = repository()
        self.assertIn("base/error.hpp", files, "the tree was not found")
        found = broken(RULES, files)
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_has_no_exception_that_is_not_needed(self):
        files = repository()
        needed = {
            (path, name.strip('"')) for path, text in cpp_files(files).items() for _, name in includes(text)
        } & EXCEPTIONS
        self.assertEqual(sorted(EXCEPTIONS - needed), [], "take these off EXCEPTIONS")


if __name__ == "__main__":
    sys.exit(unittest.main())
