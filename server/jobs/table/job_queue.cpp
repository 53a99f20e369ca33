#include "server/jobs/table/job_queue.hpp"

#include <algorithm>

namespace distilld {

void JobQueue::put(const std::string& id, const QueuePlace& place) {
    erase(id);
    const auto added = places_.emplace(id, place).first;
    auto& line = lines_[place.priority];
    const auto index = static_cast<Line::difference_type>(index_of(line, place.number));
    line.insert(line.begin() + index, {place.number, &added->first});
}

bool JobQueue::erase(const std::string& id) {
    const auto found = places_.find(id);
    if (found == places_.end()) {
        return false;
    }
    const auto line = lines_.find(found->second.priority);
    const auto index = static_cast<Line::difference_type>(index_of(line->second, found->second.number, id));
    line->second.erase(line->second.begin() + index);
    if (line->second.empty()) {
        lines_.erase(line);
    }
    places_.erase(found);
    return true;
}

void JobQueue::apply(const QueueChange& change) {
    if (change.place) {
        put(change.id, *change.place);
    } else {
        erase(change.id);
    }
}

std::optional<std::uint64_t> JobQueue::position(const std::string& id) const {
    const auto found = places_.find(id);
    if (found == places_.end()) {
        return std::nullopt;
    }
    std::uint64_t before = 0;
    for (const auto& [priority, line] : lines_) {
        ++visited_;
        if (priority == found->second.priority) {
            return before + index_of(line, found->second.number, id) + 1;
        }
        before += line.size();
    }
    return std::nullopt;
}

std::vector<std::string> JobQueue::ids() const {
    std::vector<std::string> result;
    result.reserve(places_.size());
    for (const auto& [priority, line] : lines_) {
        for (const auto& waiting : line) {
            result.push_back(*waiting.id);
        }
    }
    return result;
}

std::size_t JobQueue::index_of(const Line& line, std::uint64_t number) const {
    const auto stands_before = [this](const Waiting& other, std::uint64_t mine) {
        ++visited_;
        return other.number < mine;
    };
    return static_cast<std::size_t>(std::lower_bound(line.begin(), line.end(), number, stands_before) - line.begin());
}

std::size_t JobQueue::index_of(const Line& line, std::uint64_t number, const std::string& id) const {
    auto index = index_of(line, number);
    while (*line[index].id != id) {
        ++visited_;
        ++index;
    }
    return index;
}

}  // namespace distilld
