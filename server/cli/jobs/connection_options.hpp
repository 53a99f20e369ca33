#pragma once

#include <memory>
#include <string>

#include "base/error.hpp"
#include "server/cli/jobs/rest_client.hpp"

namespace distilld::cli {

inline constexpr const char* kDefaultServer = "http://127.0.0.1:8500";

/// How to connect to a service. Files; empty = none.
struct ConnectionOptions {
    std::string server;
    std::string api_key_file;  ///< empty: from kApiKeyVariable, else no key
    std::string ca;
    std::string certificate;
    std::string certificate_key;
};

/// Fills in missing options from the environment: --server is DISTILLD_SERVER, and so on. (CLI11 would apply a variable
/// for each command that has the option, even over an explicit value of one of them.)
void take_environment(ConnectionOptions& options);

/// Also reads the key. The error names the option at fault.
[[nodiscard]] Result<std::unique_ptr<RestClient>> make_client(const ConnectionOptions& options);

}  // namespace distilld::cli
