#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "base/error.hpp"

namespace distilld {

/// Lines of text over a stream socket, both ways: the transport of the worker protocol. One executor, a strand or a
/// single-threaded context; send() may be called from any thread.
class LineChannel {
  public:
    /// Takes ownership of `fd`, a connected stream socket. `line_limit`: maximum bytes of a received line.
    LineChannel(boost::asio::any_io_executor executor, int fd, std::size_t line_limit);
    ~LineChannel();
    LineChannel(const LineChannel&) = delete;
    LineChannel& operator=(const LineChannel&) = delete;

    /// Queues a line that ends with a newline. While more than kDroppableBytes are unsent, newer droppable lines
    /// replace older ones; other lines are always kept.
    void send(std::string line, bool droppable);

    /// The next line without its newline; nullopt if the peer has closed. Errors: a line above the limit (the channel
    /// is then unusable), or an error of the kernel. Cancellation throws operation_aborted.
    boost::asio::awaitable<Result<std::optional<std::string>>> receive();

    /// Waits until everything is sent, the peer has left or `deadline` has passed; true in the first case.
    boost::asio::awaitable<bool> flush(std::chrono::milliseconds deadline);

    void close();

    static constexpr std::size_t kDroppableBytes = 256U << 10;

  private:
    struct State;
    std::shared_ptr<State> state_;
};

}  // namespace distilld
