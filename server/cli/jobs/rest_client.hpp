#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace distilld::cli {

struct RestResponse {
    unsigned status = 0;
    std::string content_type;
    std::string body;
};

/// A small blocking HTTP client for the service's REST API; one connection per call. One thread.
class RestClient {
  public:
    using Headers = std::vector<std::pair<std::string, std::string>>;
    /// Takes a piece of a streamed body; false: stop.
    using OnPiece = std::function<bool(std::string_view)>;

    virtual ~RestClient() = default;

    virtual Result<RestResponse> request(const std::string& method, const std::string& target,
                                         const std::string& body = {}, const Headers& headers = {}) = 0;

    /// GET that hands over the body in pieces. Returns at the end of the body, or when `on_piece` returns false. An
    /// answer other than 200 is returned with its body. An error when nothing comes for `silence`.
    virtual Result<RestResponse> stream(const std::string& target, const Headers& headers, const OnPiece& on_piece,
                                        std::chrono::seconds silence) = 0;
};

struct RestClientOptions {
    std::string api_key{};      ///< sent with each request; empty = none. Never part of a message
    std::string ca{};           ///< PEM file of authorities besides the system's, for https
    std::string certificate{};  ///< PEM file for a server that asks for a certificate; with `certificate_key`
    std::string certificate_key{};
};

/// `server` is http://HOST[:PORT] or https://…; anything else, and a file that cannot be read, is an invalid_input
/// error.
Result<std::unique_ptr<RestClient>> make_rest_client(const std::string& server, RestClientOptions options = {});

/// "404 Not Found: there is no job 'x'" from a problem+json body, with one line per violation of a spec.
[[nodiscard]] std::string describe_problem(const RestResponse& response);

/// The text as one segment of a path.
[[nodiscard]] std::string path_segment(const std::string& text);

}  // namespace distilld::cli
