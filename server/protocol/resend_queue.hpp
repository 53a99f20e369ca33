#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace distilld {

/// Messages to a peer that must get each of them once and in order, over connections that break. Each has a sequence
/// number, is kept until the peer has acknowledged it, and is sent again over the next connection. The peer drops what
/// it has seen; numbers may be missing, because messages that a newer one replaces are dropped. Pure; one thread.
class ResendQueue {
  public:
    enum class Keep {
        always,
        newest,   ///< a newer one replaces it (progress)
        bounded,  ///< the oldest are dropped if they take too much memory (output of the worker)
    };
    struct Message {
        std::uint64_t sequence = 0;
        std::string line;
    };
    struct Limits {
        std::size_t bounded_bytes = std::size_t{1} << 20;  ///< of messages of kind `bounded`
        /// Bytes that are sent and not acknowledged; a larger message waits until nothing else is.
        std::size_t window_bytes = std::size_t{1} << 20;
    };

    /// The first message gets the number after `last`.
    explicit ResendQueue(std::uint64_t last = 0) : ResendQueue(last, Limits{}) {}
    ResendQueue(std::uint64_t last, Limits limits) : last_(last), acknowledged_(last), limits_(limits) {}

    void push(std::string line, Keep keep);
    /// The peer has all messages up to this one. False: none had this number, so the peer is not ours.
    [[nodiscard]] bool acknowledge(std::uint64_t sequence);
    /// A new connection: all that is kept is sent again.
    void reconnect();
    /// The next message to send over this connection; nullopt: there is none now.
    [[nodiscard]] std::optional<Message> next();

    /// The peer has acknowledged everything.
    [[nodiscard]] bool empty() const noexcept { return kept_.empty(); }
    /// Messages that it has not acknowledged.
    [[nodiscard]] std::size_t size() const noexcept { return kept_.size(); }
    [[nodiscard]] std::uint64_t acknowledged() const noexcept { return acknowledged_; }
    /// Messages of kind `bounded` that were dropped so far.
    [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_; }

  private:
    struct Kept {
        Message message;
        Keep keep = Keep::always;
        bool sent = false;  ///< over this connection
    };
    void forget(std::deque<Kept>::iterator place);

    std::deque<Kept> kept_;  ///< ascending
    std::uint64_t last_;
    std::uint64_t acknowledged_;
    Limits limits_;
    std::size_t bounded_bytes_ = 0;
    std::size_t sent_bytes_ = 0;
    std::uint64_t dropped_ = 0;
};

}  // namespace distilld
