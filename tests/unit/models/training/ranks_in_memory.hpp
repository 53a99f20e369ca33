#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pipeline/core/ranks/rank_exchange.hpp"

/// Ranks that are threads of one process.
namespace distilld::test {

class Mailboxes {
  public:
    explicit Mailboxes(std::uint32_t count) : count_(count) {}

    [[nodiscard]] std::uint32_t count() const noexcept { return count_; }

    void put(std::uint32_t from, std::uint32_t to, std::string letter) {
        {
            const std::lock_guard lock(mutex_);
            letters_[{from, to}].push_back(std::move(letter));
        }
        changed_.notify_all();
    }

    /// The number of the next letter that `to` asks for.
    std::size_t order(std::uint32_t from, std::uint32_t to) {
        const std::lock_guard lock(mutex_);
        return ordered_[{from, to}]++;
    }

    /// Waits for that letter. Throws if the mail is closed.
    std::string take(std::uint32_t from, std::uint32_t to, std::size_t number) {
        std::unique_lock lock(mutex_);
        const std::deque<std::string>& box = letters_[{from, to}];
        changed_.wait(lock, [&] { return box.size() > number || closed_.contains(to); });
        if (box.size() <= number) {
            throw std::runtime_error("rank " + std::to_string(to) + " has left");
        }
        return box[number];
    }

    void close(std::uint32_t to) {
        {
            const std::lock_guard lock(mutex_);
            closed_.insert(to);
        }
        changed_.notify_all();
    }

  private:
    std::uint32_t count_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<std::string>> letters_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> ordered_;
    std::set<std::uint32_t> closed_;
};

class RankInMemory final : public RankExchange {
  public:
    RankInMemory(Mailboxes& mail, std::uint32_t rank) : mail_(mail), rank_(rank) {}

    [[nodiscard]] std::uint32_t rank() const noexcept override { return rank_; }
    [[nodiscard]] std::uint32_t count() const noexcept override { return mail_.count(); }

    std::unique_ptr<Transfer> begin_send(std::span<const std::byte> bytes, std::uint32_t to) override {
        mail_.put(rank_, to, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        return std::make_unique<Sent>();
    }
    std::unique_ptr<Transfer> begin_receive(std::span<std::byte> bytes, std::uint32_t from) override {
        return std::make_unique<Awaited>(mail_, bytes, from, rank_);
    }
    void abandon() noexcept override { mail_.close(rank_); }

  private:
    class Sent final : public Transfer {
      public:
        void wait() override {}
    };

    class Awaited final : public Transfer {
      public:
        Awaited(Mailboxes& mail, std::span<std::byte> bytes, std::uint32_t from, std::uint32_t to)
            : mail_(mail), bytes_(bytes), from_(from), to_(to), number_(mail.order(from, to)) {}
        void wait() override {
            const std::string letter = mail_.take(from_, to_, number_);
            if (letter.size() != bytes_.size()) {
                throw std::runtime_error("a message has another size than expected");
            }
            std::ranges::copy(std::as_bytes(std::span(letter)), bytes_.begin());
        }

      private:
        Mailboxes& mail_;
        std::span<std::byte> bytes_;
        std::uint32_t from_;
        std::uint32_t to_;
        std::size_t number_;
    };

    Mailboxes& mail_;
    std::uint32_t rank_;
};

/// Runs `work` once for each of `count` ranks, at the same time.
inline void on_ranks(std::uint32_t count, const std::function<void(RankExchange&)>& work) {
    Mailboxes mail(count);
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < count; ++rank) {
        threads.emplace_back([&mail, &work, rank] {
            RankInMemory exchange(mail, rank);
            work(exchange);
        });
    }
}

}  // namespace distilld::test
