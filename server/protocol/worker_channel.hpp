#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "server/protocol/worker_protocol.hpp"

namespace distilld {

/// The worker's end of the protocol (server/protocol/worker_protocol.hpp). One executor, a strand or a single-threaded
/// context; send() may be called from any thread.
class WorkerChannel {
  public:
    virtual ~WorkerChannel() = default;

    /// Queues a message and returns at once; any thread. While the parent does not read, only the newest progress
    /// events are kept, but all other messages. After the parent's end or close(), messages are discarded.
    virtual void send(const UpMessage& message) = 0;

    /// The next order; nullopt once the parent has ended (a training worker then writes a checkpoint and exits). One
    /// call at a time. Errors: a line that is not a message, or is too long; only after the former is the channel still
    /// usable. Per-operation cancellation (terminal) throws boost::system::system_error(operation_aborted).
    virtual boost::asio::awaitable<Result<std::optional<DownMessage>>> receive() = 0;

    /// Waits until the kernel has all queued messages, the parent has ended, or `deadline` has passed. Call it before
    /// the process exits, or its last event is lost. True: all were handed over.
    virtual boost::asio::awaitable<bool> flush(std::chrono::milliseconds deadline) = 0;

    /// Ends receive() and discards queued messages.
    virtual void close() = 0;
};

/// Takes ownership of `fd` (not inherited by children) and queues the hello. An error if `fd` is not a socket: the
/// program was not started by distilld.
Result<std::unique_ptr<WorkerChannel>> make_worker_channel(boost::asio::any_io_executor executor,
                                                           int fd = kWorkerProtocolFd);

}  // namespace distilld
