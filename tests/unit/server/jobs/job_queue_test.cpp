#include "server/jobs/table/job_queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

#include "server/jobs/table/live_jobs.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// The same, as it is told in words: a list that is gone through from behind.
class PlainQueue {
  public:
    void put(const std::string& id, const QueuePlace& mine) {
        erase(id);
        const auto stands_before = [&](const auto& one) {
            const QueuePlace& other = one.second;
            return other.priority != mine.priority ? other.priority > mine.priority : other.number < mine.number;
        };
        const auto before = std::find_if(list_.rbegin(), list_.rend(), stands_before);
        list_.insert(before.base(), {id, mine});
    }
    bool erase(const std::string& id) {
        return std::erase_if(list_, [&](const auto& one) { return one.first == id; }) != 0;
    }
    std::vector<std::string> ids() const {
        std::vector<std::string> result;
        for (const auto& [id, place] : list_) {
            result.push_back(id);
        }
        return result;
    }

  private:
    std::vector<std::pair<std::string, QueuePlace>> list_;
};

TEST(JobQueue, IsInOrderWhateverHappens) {
    std::mt19937 random(7);
    const auto pick = [&random](int bound) { return std::uniform_int_distribution(0, bound - 1)(random); };
    JobQueue queue;
    PlainQueue plain;
    for (int event = 0; event < 4000; ++event) {
        const auto id = "j" + std::to_string(pick(60));
        if (pick(3) == 0) {
            EXPECT_EQ(queue.erase(id), plain.erase(id));
        } else {  // numbers that are there twice, too
            const QueuePlace place{pick(4) - 2, static_cast<std::uint64_t>(pick(40))};
            queue.put(id, place);
            plain.put(id, place);
        }
        const auto ids = plain.ids();
        ASSERT_EQ(queue.ids(), ids);
        ASSERT_EQ(queue.size(), ids.size());
        ASSERT_EQ(queue.empty(), ids.empty());
        for (std::size_t index = 0; index < ids.size(); ++index) {
            ASSERT_EQ(queue.position(ids[index]), index + 1) << ids[index];
        }
        if (!ids.empty()) {
            ASSERT_EQ(queue.front(), ids.front());
        }
        ASSERT_FALSE(queue.position("nobody"));
    }
}

TEST(JobQueue, NothingGoesThroughAllForOne) {
    JobQueue queue;
    for (std::uint64_t number = 1; number <= 20'000; ++number) {
        queue.put("j" + std::to_string(number), {number % 2 == 0 ? 0 : 5, number});
    }
    const auto cost = [&queue](const auto& event) {
        const auto before = queue.visited();
        event();
        return queue.visited() - before;
    };
    constexpr std::uint64_t kFew = 2 * 15 + 4;  // log2(10,000) twice, and the priorities
    EXPECT_LE(cost([&] { queue.put("last", {0, 30'000}); }), kFew);
    EXPECT_LE(cost([&] { EXPECT_EQ(queue.position("last"), 20'001U); }), kFew);
    EXPECT_LE(cost([&] { EXPECT_EQ(queue.position("j10001"), 5'001U); }), kFew);
    EXPECT_LE(cost([&] { queue.put("j10001", {0, 10'001}); }), kFew);
    EXPECT_LE(cost([&] { queue.erase("j9999"); }), kFew);
    EXPECT_LE(cost([&] { queue.erase(queue.front()); }), kFew);
    EXPECT_LE(cost([&] { EXPECT_EQ(queue.position("j10001"), 9'997U + 5'001U); }), kFew);
    EXPECT_EQ(cost([&] { EXPECT_EQ(queue.front(), "j3"); }), 0U);
}

TEST(JobQueue, ABoardFollowsItByItsChanges) {
    LiveJobs live_jobs;
    live_jobs.change_queue({{"a", QueuePlace{0, 1}}, {"b", QueuePlace{0, 2}}, {"c", QueuePlace{0, 3}}});
    EXPECT_EQ(live_jobs.queue_position("c"), 3U);
    live_jobs.change_queue({{"a", std::nullopt}, {"c", QueuePlace{1, 3}}});
    EXPECT_FALSE(live_jobs.queue_position("a"));
    EXPECT_EQ(live_jobs.queue_position("c"), 1U);
    EXPECT_EQ(live_jobs.queue_position("b"), 2U);
    EXPECT_EQ(live_jobs.version_of("b").queue_position, 2U);
    EXPECT_EQ(live_jobs.version_of("a").queue_position, 0U);
}

}  // namespace
}  // namespace distilld
