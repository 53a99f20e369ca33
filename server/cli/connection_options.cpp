#include "server/cli/connection_options.hpp"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <utility>

#include "server/cli/api_key.hpp"

namespace distilld::cli {
namespace {

constexpr const char* kDefaultServer = "http://127.0.0.1:8500";

}  // namespace

void add_connection_options(CLI::App& command, ConnectionOptions& options) {
    command.add_option("--server", options.server, "URL of the service (else DISTILLD_SERVER)")
        ->type_name("URL")
        ->default_str(kDefaultServer);
    command
        .add_option(
            "--api-key-file", options.api_key_file,
            "file with the key of the service (else DISTILLD_API_KEY_FILE, or DISTILLD_API_KEY is the key itself)")
        ->type_name("FILE");
    command
        .add_option("--ca", options.ca,
                    "PEM file with authorities to trust besides the system's, for https (else DISTILLD_CA)")
        ->type_name("FILE");
    auto* certificate =
        command
            .add_option(
                "--certificate", options.certificate,
                "PEM file with a client certificate, for a service that asks for one (else DISTILLD_CERTIFICATE)")
            ->type_name("FILE");
    command
        .add_option("--certificate-key", options.certificate_key,
                    "PEM file with its key (else DISTILLD_CERTIFICATE_KEY)")
        ->type_name("FILE")
        ->needs(certificate);
}

void take_environment(ConnectionOptions& options) {
    for (const auto& [option, variable] : {std::pair{&options.server, "DISTILLD_SERVER"},
                                           {&options.api_key_file, "DISTILLD_API_KEY_FILE"},
                                           {&options.ca, "DISTILLD_CA"},
                                           {&options.certificate, "DISTILLD_CERTIFICATE"},
                                           {&options.certificate_key, "DISTILLD_CERTIFICATE_KEY"}}) {
        if (const char* value = std::getenv(variable); option->empty() && value != nullptr) {
            *option = value;
        }
    }
    if (options.server.empty()) {
        options.server = kDefaultServer;
    }
}

Result<std::unique_ptr<RestClient>> make_client(const ConnectionOptions& options) {
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
    return make_rest_client(options.server, std::move(made));
}

}  // namespace distilld::cli
