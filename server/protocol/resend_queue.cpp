#include "server/protocol/resend_queue.hpp"

#include <algorithm>
#include <utility>

namespace distilld {

void ResendQueue::push(std::string line, Keep keep) {
    const auto older = [keep](const Kept& one) { return one.keep == keep && !one.sent; };
    if (keep == Keep::newest) {
        if (const auto replaced = std::ranges::find_if(kept_, older); replaced != kept_.end()) {
            forget(replaced);
        }
    } else if (keep == Keep::bounded) {
        bounded_bytes_ += line.size();
        while (bounded_bytes_ > limits_.bounded_bytes) {
            const auto oldest = std::ranges::find(kept_, Keep::bounded, &Kept::keep);
            if (oldest == kept_.end()) {
                break;
            }
            ++dropped_;
            forget(oldest);
        }
    }
    kept_.push_back({{++last_, std::move(line)}, keep});
}

bool ResendQueue::acknowledge(std::uint64_t sequence) {
    if (sequence > last_) {
        return false;
    }
    acknowledged_ = std::max(acknowledged_, sequence);
    while (!kept_.empty() && kept_.front().message.sequence <= acknowledged_) {
        forget(kept_.begin());
    }
    return true;
}

void ResendQueue::reconnect() {
    bool newer = false;
    sent_bytes_ = 0;
    for (auto place = kept_.end(); place != kept_.begin();) {
        --place;
        place->sent = false;
        if (place->keep == Keep::newest && std::exchange(newer, true)) {
            place = kept_.erase(place);
        }
    }
}

std::optional<ResendQueue::Message> ResendQueue::next() {
    const auto place = std::ranges::find(kept_, false, &Kept::sent);
    if (place == kept_.end()) {
        return std::nullopt;
    }
    const std::size_t bytes = place->message.line.size();
    if (sent_bytes_ > 0 && sent_bytes_ + bytes > limits_.window_bytes) {
        return std::nullopt;
    }
    place->sent = true;
    sent_bytes_ += bytes;
    return place->message;
}

void ResendQueue::forget(std::deque<Kept>::iterator place) {
    if (place->keep == Keep::bounded) {
        bounded_bytes_ -= place->message.line.size();
    }
    if (place->sent) {
        sent_bytes_ -= place->message.line.size();
    }
    kept_.erase(place);
}

}  // namespace distilld
