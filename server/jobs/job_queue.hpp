#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace distilld {

/// Where a job stands in the queue: before those of lower priority, and before those of its own that came later.
struct QueuePlace {
    std::int32_t priority = 0;
    std::uint64_t number = 0;  ///< jobs are numbered as they come; 0 = behind all that there have been
};

/// A job has come to stand in the queue, elsewhere in it, or has left it.
struct QueueChange {
    std::string id;
    std::optional<QueuePlace> place;  ///< nothing: it does not wait any more
};

/// The jobs that wait, in their order. Thousands may: nothing here goes through all of them for one, and positions are
/// worked out when they are asked for, so that a job that leaves renumbers nobody. One thread at a time.
class JobQueue {
  public:
    JobQueue() = default;
    JobQueue(const JobQueue&) = delete;  // lines_ points into places_
    JobQueue& operator=(const JobQueue&) = delete;
    JobQueue(JobQueue&&) = default;
    JobQueue& operator=(JobQueue&&) = default;
    ~JobQueue() = default;

    /// A job that waits already leaves its old place. Of two with the same one the later stands before.
    void put(const std::string& id, const QueuePlace& place);
    /// False: it does not wait.
    bool erase(const std::string& id);
    void apply(const QueueChange& change);

    [[nodiscard]] bool empty() const noexcept { return places_.empty(); }
    [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }
    /// The next. There must be one.
    [[nodiscard]] const std::string& front() const { return *lines_.begin()->second.front().id; }
    /// 1 = next.
    [[nodiscard]] std::optional<std::uint64_t> position(const std::string& id) const;
    /// The next first.
    [[nodiscard]] std::vector<std::string> ids() const;

    /// Jobs and priorities that have been looked at so far: what an event costs.
    [[nodiscard]] std::uint64_t visited() const noexcept { return visited_; }

  private:
    struct Waiting {
        std::uint64_t number = 0;
        const std::string* id = nullptr;  ///< the key in places_
    };
    using Line = std::deque<Waiting>;  ///< those of one priority, by number
    /// Index of the first with this number or a greater one.
    [[nodiscard]] std::size_t index_of(const Line& line, std::uint64_t number) const;
    /// Index of a job that stands there.
    [[nodiscard]] std::size_t index_of(const Line& line, std::uint64_t number, const std::string& id) const;

    std::unordered_map<std::string, QueuePlace> places_;
    std::map<std::int32_t, Line, std::greater<>> lines_;  ///< none of them empty
    mutable std::uint64_t visited_ = 0;
};

}  // namespace distilld
