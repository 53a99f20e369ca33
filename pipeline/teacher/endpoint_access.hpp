#pragma once

#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "net/endpoint_url.hpp"
#include "net/http_pool.hpp"

namespace distilld {

/// What connections to the endpoints of a section of a spec need.
struct EndpointAccess {
    std::vector<EndpointUrl> urls;
    std::shared_ptr<boost::asio::ssl::context> tls;  ///< null: no endpoint needs it
    HttpPoolOptions pool;
};

struct EndpointAccessWish {
    std::string section;                                  ///< "/teacher", for errors
    std::vector<std::string> endpoints;                   ///< at least one
    std::string default_path;                             ///< of a URL without a path
    std::string (*complete_path)(std::string) = nullptr;  ///< null: paths are complete
    std::string ca_file;
    std::string bearer;
    std::chrono::milliseconds idle_limit{2500};
};

/// Errors name the field and the endpoint.
[[nodiscard]] Result<EndpointAccess> make_endpoint_access(EndpointAccessWish wish);

/// Prefixes the error with the endpoint's field.
[[nodiscard]] Error at_endpoint(const std::string& section, std::size_t index, const Error& error);

}  // namespace distilld
