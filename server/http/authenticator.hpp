#pragma once

#include <optional>
#include <string>

#include "server/http/caller.hpp"
#include "server/http/http_message.hpp"
#include "server/http/origin_check.hpp"

namespace distilld::http {

/// The caller of a request, or the answer that refuses it.
struct Authentication {
    std::optional<http::Caller> caller{};
    std::optional<http::Response> refusal{};
};

/// Decides from the head of a request who sends it and whether the caller may. Runs after OriginCheck and before the
/// body is read, on the server's executor; it must not block.
class Authenticator {
  public:
    virtual ~Authenticator() = default;
    [[nodiscard]] virtual Authentication judge(const RequestHead& head) = 0;
    /// The refusal for a caller that is no longer accepted, because its key was revoked; nullopt if it still is.
    [[nodiscard]] virtual std::optional<http::Response> revocation(const http::Caller& caller) = 0;
};

/// An answer that was sent, for the audit log.
struct AnswerRecord {
    std::string method;
    std::string path;
    std::string remote;
    std::string caller;   ///< empty = unknown
    std::string subject;  ///< id in the path, or the id of what the answer created; empty = none
    std::string request_id;
    unsigned status = 0;
};

}  // namespace distilld::http
