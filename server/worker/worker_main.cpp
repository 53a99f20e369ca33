// distilld-worker: the data plane. Links libtorch; distilld starts it, people seldom do.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "distilld_version.hpp"
#include "server/support/exit_codes.hpp"
#include "server/support/man_page.hpp"
#include "server/teacher/teacher_options.hpp"
#include "server/teacher/teacher_server.hpp"
#include "server/worker/train_worker.hpp"

namespace {

int run(int argc, char** argv) {
    CLI::App app{"distilld-worker: trains students and serves teachers for distilld", "distilld-worker"};
    app.formatter(distilld::make_help_formatter());
    app.set_version_flag("--version", std::string("distilld-worker ") + distilld::kVersion);
    app.require_subcommand(1);
    app.footer(distilld::kExitCodesHelp);
    bool over_stdio = false;
    app.add_subcommand("train", "Run one job (train, generate); distilld sends it over file descriptor 3")
        ->add_flag("--stdio", over_stdio, "distilld sends it over stdin, and is answered on stdout");
    distilld::TeacherOptions teacher;
    distilld::add_teacher_options(*app.add_subcommand("teacher", "Serve a model as a teacher endpoint"), teacher);
    app.add_subcommand("man", "Write the manual page to stdout, as man -l reads it");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? distilld::kDone : distilld::kWrongUsage;
    }
    if (app.got_subcommand("man")) {
        const auto page = distilld::man_page(distilld::command_tree(app), distilld::kVersion, {"distilld(1)"});
        return std::fputs(page.c_str(), stdout) < 0 ? distilld::kFailed : distilld::kDone;
    }
    return app.got_subcommand("train") ? distilld::run_train_worker(over_stdio) : distilld::run_teacher_server(teacher);
}

}  // namespace

int main(int argc, char** argv) {
    const int code = run(argc, argv);
    // The static objects of libtorch remove its operators one by one: a third of the time that a worker needs to start
    // and end. The kernel frees everything at once.
    std::fflush(nullptr);
    ::_exit(code);
}
