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
    /// events are kept; nothing else is ever dropped. After the parent's end, or close(), messages go nowhere.
    virtual void send(const UpMessage& message) = 0;

    /// The next order; nullopt once the parent has gone (a training worker then ends by itself: checkpoint, leave). One
    /// call at a time. A line that is no message, or too long, is an error; the channel stays usable only after the
    /// former. Per-operation cancellation (terminal) throws boost::system::system_error(operation_aborted).
    virtual boost::asio::awaitable<Result<std::optional<DownMessage>>> receive() = 0;

    /// Waits until all queued messages are with the kernel, the parent has gone, or `deadline` has passed. To be called
    /// before the process ends, or its last event is lost. True: all were handed over.
    virtual boost::asio::awaitable<bool> flush(std::chrono::milliseconds deadline) = 0;

    /// Ends receive() and drops what is queued.
    virtual void close() = 0;
};

/// Takes over `fd` (closed by the channel, not inherited by children) and queues the hello. An error when `fd` is not a
/// socket: the program was not started by distilld.
Result<std::unique_ptr<WorkerChannel>> make_worker_channel(boost::asio::any_io_executor executor,
                                                           int fd = kWorkerProtocolFd);

}  // namespace distilld
