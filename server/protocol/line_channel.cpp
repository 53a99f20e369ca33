#include "server/protocol/line_channel.hpp"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <mutex>

#include "pipeline/async/abort.hpp"
#include "pipeline/async/tuple.hpp"

namespace distilld {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::size_t kWriteAtOnce = 64U << 10;

struct Line {
    std::string text;
    bool droppable = false;
};

}  // namespace

/// Outlives the channel while an operation is in progress.
struct LineChannel::State : std::enable_shared_from_this<LineChannel::State> {
    State(asio::any_io_executor executor_in, int fd, std::size_t limit)
        : executor(std::move(executor_in)),
          socket(executor, asio::local::stream_protocol(), fd),
          drained(executor),
          line_limit(limit) {}

    /// Moves the next line to in_flight; false: the queue is empty, and the writer ends.
    bool take_next() {
        const std::lock_guard lock(mutex);
        writing = !closed && !queue.empty();
        if (!writing) {
            return false;
        }
        in_flight.clear();
        do {
            queued_bytes -= queue.front().text.size();
            in_flight += queue.front().text;
            queue.pop_front();
        } while (!queue.empty() && in_flight.size() + queue.front().text.size() <= kWriteAtOnce);
        return true;
    }

    void write_next() {
        if (!take_next()) {
            drained.cancel();
            return;
        }
        asio::async_write(socket, asio::buffer(in_flight), [self = shared_from_this()](error_code ec, std::size_t) {
            if (ec) {
                self->drop_all();
            }
            self->write_next();
        });
    }

    void drop_all() {
        const std::lock_guard lock(mutex);
        closed = true;
        queue.clear();
        queued_bytes = 0;
    }

    asio::any_io_executor executor;
    asio::local::stream_protocol::socket socket;
    asio::steady_timer drained;
    std::size_t line_limit;
    bool peer_gone = false;
    std::string received;   ///< bytes after the last returned line
    std::string in_flight;  ///< being written
    std::mutex mutex;       ///< for the members below
    std::deque<Line> queue;
    std::size_t queued_bytes = 0;
    bool writing = false;
    bool closed = false;
};

LineChannel::LineChannel(asio::any_io_executor executor, int fd, std::size_t line_limit)
    : state_(std::make_shared<State>(std::move(executor), fd, line_limit)) {}

LineChannel::~LineChannel() {
    close();
}

void LineChannel::send(std::string line, bool droppable) {
    State& state = *state_;
    const std::lock_guard lock(state.mutex);
    if (state.closed) {
        return;
    }
    if (droppable) {
        auto oldest = state.queue.begin();
        while (state.queued_bytes + line.size() > kDroppableBytes && oldest != state.queue.end()) {
            if (!oldest->droppable) {
                ++oldest;
                continue;
            }
            state.queued_bytes -= oldest->text.size();
            oldest = state.queue.erase(oldest);
        }
    }
    state.queued_bytes += line.size();
    state.queue.push_back({std::move(line), droppable});
    if (state.writing) {
        return;
    }
    state.writing = true;
    asio::post(state.executor, [self = state_] { self->write_next(); });
}

asio::awaitable<Result<std::optional<std::string>>> LineChannel::receive() {
    const std::shared_ptr<State> state = state_;
    // The reactor reports the end once, so a read after it would wait forever.
    if (state->peer_gone) {
        co_return std::optional<std::string>();
    }
    auto buffer = asio::dynamic_buffer(state->received, state->line_limit);
    const auto read = co_await asio::async_read_until(state->socket, buffer, '\n', kTuple);
    const error_code ec = std::get<0>(read);
    if (is_abort(ec)) {
        throw boost::system::system_error(ec);
    }
    if (ec == asio::error::not_found) {
        co_return io_error("a line is longer than " + std::to_string(state->line_limit) + " bytes");
    }
    // A peer that died with unread data causes a reset instead of an end.
    if (ec == asio::error::eof || ec == asio::error::connection_reset || ec == asio::error::bad_descriptor) {
        state->peer_gone = true;
        co_return std::optional<std::string>();
    }
    if (ec) {
        co_return io_error("worker protocol: " + ec.message());
    }
    const std::size_t size = std::get<1>(read);
    std::optional<std::string> line(state->received.substr(0, size - 1));
    state->received.erase(0, size);
    co_return line;
}

asio::awaitable<bool> LineChannel::flush(std::chrono::milliseconds deadline) {
    const std::shared_ptr<State> state = state_;
    const auto until = asio::steady_timer::clock_type::now() + deadline;
    for (;;) {
        {
            const std::lock_guard lock(state->mutex);
            if (state->closed) {
                co_return false;
            }
            if (!state->writing) {
                co_return true;
            }
        }
        if (asio::steady_timer::clock_type::now() >= until) {
            co_return false;
        }
        state->drained.expires_at(until);
        co_await state->drained.async_wait(kTuple);
    }
}

void LineChannel::close() {
    state_->drop_all();
    error_code ignored;
    state_->socket.close(ignored);
    state_->drained.cancel();
}

}  // namespace distilld
