#include "server/cli/jobs/connection_options.hpp"

#include <cstdlib>
#include <utility>

#include "server/cli/jobs/api_key.hpp"

namespace distilld::cli {
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
