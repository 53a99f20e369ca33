#include "server/supervisor/worker_output.hpp"

#include <unistd.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <span>
#include <utility>

#include "base/files/files.hpp"
#include "base/utf8.hpp"
#include "pipeline/async/tuple.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

constexpr std::size_t kMaxTailBytes = 8U << 10;
constexpr std::size_t kMaxForwardedLine = 8U << 10;

}  // namespace

WorkerOutput::WorkerOutput(const asio::any_io_executor& executor, LineSink sink)
    : pipe_(executor), sink_(std::move(sink)) {}

void WorkerOutput::assign(int fd) {
    pipe_.assign(fd);
}

asio::awaitable<void> WorkerOutput::read() {
    std::array<char, 4096> piece{};
    for (;;) {
        const auto space = asio::buffer(piece);
        const auto read = co_await pipe_.async_read_some(space, kTuple);
        take(std::string_view(piece.data(), std::get<1>(read)));
        if (std::get<0>(read)) {
            break;
        }
    }
    if (!line_.empty()) {
        hand_on();
    }
}

void WorkerOutput::close() {
    boost::system::error_code ignored;
    pipe_.close(ignored);
}

void WorkerOutput::take(std::string_view bytes) {
    tail_.append(bytes);
    if (tail_.size() > kMaxTailBytes) {
        tail_.erase(0, tail_.size() - kMaxTailBytes);
    }
    for (const char byte : bytes) {
        if (byte != '\n') {
            line_ += byte;
        }
        if (byte == '\n' || line_.size() >= kMaxForwardedLine) {
            hand_on();
        }
    }
}

void WorkerOutput::hand_on() {
    if (sink_) {
        sink_(to_valid_utf8(line_));
    }
    line_.clear();
}

std::string WorkerOutput::tail() const {
    return to_valid_utf8(tail_);
}

std::string WorkerOutput::last_line() const {
    const auto end = tail_.find_last_not_of(" \n\r\t");
    if (end == std::string::npos) {
        return {};
    }
    const auto before = tail_.rfind('\n', end);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    return to_valid_utf8(std::string_view(tail_).substr(begin, end + 1 - begin));
}

void write_to_stderr(const std::string& line) {
    const std::string text = line + '\n';
    static_cast<void>(write_all(STDERR_FILENO, std::as_bytes(std::span(text)), "stderr"));
}

}  // namespace distilld
