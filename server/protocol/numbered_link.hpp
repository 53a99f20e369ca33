#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/job_attempt.hpp"
#include "server/protocol/message_codec.hpp"
#include "server/protocol/resend_queue.hpp"

namespace distilld {

/// Incremented when the frames change. The lines in them have a version of their own (kWorkerProtocolVersion).
inline constexpr std::uint32_t kLinkVersion = 1;
inline constexpr std::size_t kLinkFrameLimit = kWorkerMessageLimit + 4096;  ///< bytes

/// One end of a worker's link to its service, over connections that break. Each frame is one JSON object. The first one
/// of a connection, in both directions, is {"type":"greeting","version":1,"job":…,"attempt":…,"received":…}. Then come
/// {"type":"message","number":…}, a newline and the message's line, and {"type":"ack","number":…}. Each end sends again
/// what the other has not acknowledged, and drops what it has seen. Pure; one thread.
class NumberedLink {
  public:
    using Keep = ResendQueue::Keep;

    /// A frame's content. Both empty: there is nothing to do.
    struct Taken {
        bool greeting = false;  ///< the peer is there
        std::optional<std::string> line{};
    };

    /// `received`: the number up to which this end has dealt with the peer's messages. `sent`: the number of its own
    /// last one; nullopt: it does not remember, and continues after what the peer has received. An end without a job
    /// takes the peer's, and greets second.
    NumberedLink(JobAttempt attempt, std::uint64_t received, std::optional<std::uint64_t> sent);

    void push(std::string line, Keep keep = Keep::always);
    /// A new connection: the greetings come first.
    void connect();
    /// A frame of the peer. An error: it is not our peer, or talks nonsense; this connection must end.
    Result<Taken> take(std::string_view frame);
    /// The next frame to send over this connection; nullopt: there is none now.
    [[nodiscard]] std::optional<std::string> next();

    /// Number of the last message that came.
    [[nodiscard]] std::uint64_t received() const noexcept { return received_; }
    /// The messages up to this one are dealt with: the peer may forget them.
    void confirm(std::uint64_t number);
    /// The peer has all that was pushed.
    [[nodiscard]] bool delivered() const noexcept { return early_.empty() && (!queue_ || queue_->empty()); }
    /// Number of messages that it does not have.
    [[nodiscard]] std::size_t undelivered() const noexcept { return early_.size() + (queue_ ? queue_->size() : 0); }
    /// Number of the last message that it has.
    [[nodiscard]] std::uint64_t acknowledged() const noexcept { return queue_ ? queue_->acknowledged() : 0; }
    /// See ResendQueue.
    [[nodiscard]] std::uint64_t dropped() const noexcept { return queue_ ? queue_->dropped() : 0; }

  private:
    struct Early {
        std::string line;
        Keep keep;
    };
    Result<Taken> take_greeting(std::string_view header);

    JobAttempt attempt_;
    std::uint64_t received_;
    std::uint64_t confirmed_;
    std::uint64_t acked_ = 0;  ///< the last acknowledgement sent
    std::optional<ResendQueue> queue_;
    std::vector<Early> early_;  ///< pushed before the queue's first number was known
    bool greets_ = false;       ///< our greeting is due
    bool greeted_ = false;      ///< the peer's has come
};

}  // namespace distilld
