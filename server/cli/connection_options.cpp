#include "server/cli/connection_options.hpp"

#include <CLI/CLI.hpp>
#include <utility>

#include "server/cli/api_key.hpp"

namespace distilld::cli {

void add_connection_options(CLI::App& command, ConnectionOptions& options) {
    command
        .add_option("--api-key-file", options.api_key_file,
                    "holds the key of the service; else the variable DISTILLD_API_KEY is it")
        ->type_name("FILE");
    command.add_option("--ca", options.ca, "PEM file of authorities that are trusted beside the system's, for https")
        ->type_name("FILE");
    auto* certificate =
        command
            .add_option("--certificate", options.certificate, "PEM file that is shown to a service which asks for one")
            ->type_name("FILE");
    command.add_option("--certificate-key", options.certificate_key, "PEM file with its key")
        ->type_name("FILE")
        ->needs(certificate);
}

Result<RestClientOptions> client_options(const ConnectionOptions& options) {
    auto key = read_api_key(options.api_key_file);
    if (!key) {
        return key.error();
    }
    RestClientOptions made;
    made.api_key = std::move(*key);
    made.ca = options.ca;
    made.certificate = options.certificate;
    // One file may hold both.
    made.certificate_key = options.certificate_key.empty() ? options.certificate : options.certificate_key;
    return made;
}

}  // namespace distilld::cli
