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

/// A job's place in the queue: before jobs of lower priority, and before later jobs of the same priority.
struct QueuePlace {
    std::int32_t priority = 0;
    std::uint64_t number = 0;  ///< jobs are numbered as they come; 0 = behind all jobs so far
};

/// A job has entered the queue, moved in it, or left it.
struct QueueChange {
    std::string id;
    std::optional<QueuePlace> place;  ///< nullopt: it no longer waits
};

/// The waiting jobs, in order. There may be thousands: no call goes through all of them for one job, and positions are
/// computed on request, so that a job that leaves renumbers nobody. One thread at a time.
class JobQueue {
  public:
    JobQueue() = default;
    JobQueue(const JobQueue&) = delete;  // lines_ points into places_
    JobQueue& operator=(const JobQueue&) = delete;
    JobQueue(JobQueue&&) = default;
    JobQueue& operator=(JobQueue&&) = default;
    ~JobQueue() = default;

    /// A job that waits already leaves its old place. If two have the same place, the later one comes first.
    void put(const std::string& id, const QueuePlace& place);
    /// False: it does not wait.
    bool erase(const std::string& id);
    void apply(const QueueChange& change);

    [[nodiscard]] bool empty() const noexcept { return places_.empty(); }
    [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }
    /// The next job. There must be one.
    [[nodiscard]] const std::string& front() const { return *lines_.begin()->second.front().id; }
    /// 1 = next.
    [[nodiscard]] std::optional<std::uint64_t> position(const std::string& id) const;
    /// The next job first.
    [[nodiscard]] std::vector<std::string> ids() const;

    /// Jobs and priorities that were looked at so far: the cost of an event.
    [[nodiscard]] std::uint64_t visited() const noexcept { return visited_; }

  private:
    struct Waiting {
        std::uint64_t number = 0;
        const std::string* id = nullptr;  ///< the key in places_
    };
    using Line = std::deque<Waiting>;  ///< the jobs of one priority, by number
    /// Index of the first with this number or a greater one.
    [[nodiscard]] std::size_t index_of(const Line& line, std::uint64_t number) const;
    /// Index of a job in the line.
    [[nodiscard]] std::size_t index_of(const Line& line, std::uint64_t number, const std::string& id) const;

    std::unordered_map<std::string, QueuePlace> places_;
    std::map<std::int32_t, Line, std::greater<>> lines_;  ///< none is empty
    mutable std::uint64_t visited_ = 0;
};

}  // namespace distilld
