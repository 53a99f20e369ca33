#pragma once

#include <optional>
#include <string>

#include "api/caller.hpp"
#include "api/http_message.hpp"
#include "server/http/request_gate.hpp"

namespace distilld::http {

/// Who a request is from, or why it goes no further.
struct DoorVerdict {
    std::optional<api::Caller> caller{};
    std::optional<api::Response> refusal{};
};

/// Judges by its head who sends a request, and whether that one may: after the gate (request_gate.hpp) and before the
/// body is read. On the server's executor: it must not block.
class Doorkeeper {
  public:
    virtual ~Doorkeeper() = default;
    [[nodiscard]] virtual DoorVerdict judge(const RequestHead& head) = 0;
    /// The answer to a caller that was let in and would not be now: its key was revoked meanwhile. Nothing: it would.
    [[nodiscard]] virtual std::optional<api::Response> revocation(const api::Caller& caller) = 0;
};

/// An answer that was sent, for whoever writes down what was asked.
struct AnswerRecord {
    std::string method;
    std::string path;
    std::string remote;
    std::string caller;   ///< empty = nobody said
    std::string subject;  ///< id in the path, or of what the answer says that it made; empty = none
    std::string request_id;
    unsigned status = 0;
};

}  // namespace distilld::http
