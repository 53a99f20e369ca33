#include "server/jobs/event_reading.hpp"

#include <utility>

namespace distilld {

boost::asio::awaitable<EventBatch> EventReading::wait(std::string id, std::uint64_t after, std::uint32_t limit) {
    auto batch = read(id, after, limit);
    if (batch.ended || !batch.events.empty()) {
        co_return batch;
    }
    co_await waiters_.wait(id, std::chrono::steady_clock::now() + heartbeat_);
    co_return read(id, after, limit);
}

EventBatch EventReading::read(const std::string& id, std::uint64_t after, std::uint32_t limit) {
    EventBatch batch;
    const auto state = journal_.state_of(id);
    if (!state) {
        batch.found = false;
        batch.ended = true;
        return batch;
    }
    auto page = journal_.events(id, after, limit);
    batch.events = std::move(page.events);
    batch.has_more = page.has_more;
    if (batch.has_more) {
        return batch;
    }
    if (api::is_terminal(*state)) {
        if (!journal_.is_saved(id)) {
            return batch;  // its last events will follow
        }
        batch.ended = true;
        batch.job = journal_.get(id);
    } else {
        batch.ended = table_.stopping() && !table_.is_running(id);
    }
    return batch;
}

}  // namespace distilld
