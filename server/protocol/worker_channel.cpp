#include "server/protocol/worker_channel.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <variant>

#include "server/protocol/line_channel.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

class SocketChannel final : public WorkerChannel {
  public:
    SocketChannel(asio::any_io_executor executor, int fd) : lines_(std::move(executor), fd, kWorkerMessageLimit) {}

    void send(const UpMessage& message) override {
        lines_.send(encode(message), std::holds_alternative<ProgressEvent>(message));
    }

    asio::awaitable<Result<std::optional<DownMessage>>> receive() override {
        const auto line = co_await lines_.receive();
        if (!line) {
            co_return line.error();
        }
        if (!line->has_value()) {
            co_return std::optional<DownMessage>();
        }
        auto message = decode_down(**line);
        if (!message) {
            co_return message.error();
        }
        co_return std::optional<DownMessage>(std::move(*message));
    }

    asio::awaitable<bool> flush(std::chrono::milliseconds deadline) override {
        co_return co_await lines_.flush(deadline);
    }

    void close() override { lines_.close(); }

  private:
    LineChannel lines_;
};

}  // namespace

Result<std::unique_ptr<WorkerChannel>> make_worker_channel(asio::any_io_executor executor, int fd) {
    int type = 0;
    socklen_t size = sizeof(type);
    if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) {
        return invalid_input("file descriptor " + std::to_string(fd) +
                             " is not a stream socket: distilld starts this program");
    }
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    auto channel = std::make_unique<SocketChannel>(std::move(executor), fd);
    channel->send(HelloMessage{kWorkerProtocolVersion, static_cast<std::int64_t>(::getpid())});
    return std::unique_ptr<WorkerChannel>(std::move(channel));
}

}  // namespace distilld
