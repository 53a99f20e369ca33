#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "api/problem.hpp"
#include "server/http/http_message.hpp"

namespace distilld::http {

/// What the answer needs to know about its request.
struct Reply {
    std::string method = "OTHER";  ///< a known method, else "OTHER", because it becomes a metric label
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
[[nodiscard]] inline http::Response make_problem(unsigned status, std::string detail) {
    api::Problem problem;
    problem.status = status;
    problem.detail = std::move(detail);
    return http::to_response(problem);
}

}  // namespace distilld::http
