#pragma once

#include <string>

#include "base/error.hpp"
#include "server/cli/rest_client.hpp"

namespace CLI {
class App;
}

namespace distilld::cli {

/// How a service is to be spoken to. Files; empty = none.
struct ConnectionOptions {
    std::string api_key_file;  ///< empty: as kApiKeyVariable says, else no key
    std::string ca;
    std::string certificate;
    std::string certificate_key;
};

void add_connection_options(CLI::App& command, ConnectionOptions& options);

/// Reads the key. The error names where it was looked for.
[[nodiscard]] Result<RestClientOptions> client_options(const ConnectionOptions& options);

}  // namespace distilld::cli
