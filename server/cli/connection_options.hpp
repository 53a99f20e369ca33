#pragma once

#include <memory>
#include <string>

#include "base/error.hpp"
#include "server/cli/rest_client.hpp"

namespace CLI {
class App;
}

namespace distilld::cli {

/// How a service is to be spoken to. Files; empty = none.
struct ConnectionOptions {
    std::string server;
    std::string api_key_file;  ///< empty: as kApiKeyVariable says, else no key
    std::string ca;
    std::string certificate;
    std::string certificate_key;
};

void add_connection_options(CLI::App& command, ConnectionOptions& options);

/// What was not given, as the environment says: --server is DISTILLD_SERVER, and so on. (CLI11 would take a variable
/// for each command that has the option, also over what was given to one.)
void take_environment(ConnectionOptions& options);

/// Reads the key, too. The error names what is wrong with an option.
[[nodiscard]] Result<std::unique_ptr<RestClient>> make_client(const ConnectionOptions& options);

}  // namespace distilld::cli
