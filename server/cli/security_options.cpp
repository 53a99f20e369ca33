#include "server/cli/security_options.hpp"

#include <CLI/CLI.hpp>

namespace distilld::cli {

void add_security_options(CLI::App& serve, SecurityOptions& options) {
    serve.add_flag("--insecure", options.insecure,
                   "listen wider than loopback although there is no key: whoever reaches the port may do everything");
    serve.add_flag("--metrics-open", options.metrics_open, "answer GET /metrics without a key");
    serve
        .add_option(
            "--root", options.roots,
            "folder below which specs may name files and folders; may be repeated. None given: anywhere without "
            "keys, else the working folder and the data folder")
        ->allow_extra_args(false)
        ->type_name("DIR");
    serve
        .add_option("--teacher-host", options.teacher_hosts,
                    "where teachers may be: NAME, *.NAME, ADDRESS or ADDRESS/BITS, with :PORT or without; may be "
                    "repeated. None given: anywhere but link-local and metadata addresses")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("HOST");
}

}  // namespace distilld::cli
