#pragma once

#include <chrono>
#include <string>

#include "api/http_message.hpp"

namespace distilld::http {

/// What the answer must know of its request.
struct Reply {
    std::string method = "OTHER";  ///< a known method, else "OTHER": it becomes a metric's label
    std::string pattern = "unmatched";
    std::string request_id;
    std::chrono::steady_clock::time_point started;
    unsigned version = 11;
    bool keep_alive = false;
    bool head = false;
    std::string path;     ///< percent-decoded
    std::string remote;   ///< address of the peer
    std::string caller;   ///< name of the key; empty = none
    std::string subject;  ///< {id} of the path; empty = none

    /// For the log: "GET /items/{id} (request 1f-000001)".
    [[nodiscard]] std::string label() const { return method + " " + pattern + " (request " + request_id + ")"; }
};

/// An error answer (RFC 9457).
[[nodiscard]] api::Response make_problem(unsigned status, std::string detail);

}  // namespace distilld::http
