#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
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

    std::string take(std::uint32_t from, std::uint32_t to) {
        std::unique_lock lock(mutex_);
        std::deque<std::string>& box = letters_[{from, to}];
        changed_.wait(lock, [&box] { return !box.empty(); });
        std::string letter = std::move(box.front());
        box.pop_front();
        return letter;
    }

  private:
    std::uint32_t count_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<std::string>> letters_;
};

class RankInMemory final : public RankExchange {
  public:
    RankInMemory(Mailboxes& mail, std::uint32_t rank) : mail_(mail), rank_(rank) {}

    [[nodiscard]] std::uint32_t rank() const noexcept override { return rank_; }
    [[nodiscard]] std::uint32_t count() const noexcept override { return mail_.count(); }

    void send(std::span<const std::byte> bytes, std::uint32_t to) override {
        mail_.put(rank_, to, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    void receive(std::span<std::byte> bytes, std::uint32_t from) override {
        const std::string letter = mail_.take(from, rank_);
        if (letter.size() != bytes.size()) {
            throw std::runtime_error("a message has another size than expected");
        }
        std::memcpy(bytes.data(), letter.data(), letter.size());
    }
    void broadcast(std::span<std::byte> bytes) override {
        for (std::uint32_t to = 1; rank_ == 0 && to < count(); ++to) {
            send(bytes, to);
        }
        if (rank_ != 0) {
            receive(bytes, 0);
        }
    }
    [[nodiscard]] std::vector<std::string> gather(const std::string& mine) override {
        for (std::uint32_t to = 0; to < count(); ++to) {
            mail_.put(rank_, to, mine);
        }
        std::vector<std::string> all;
        for (std::uint32_t from = 0; from < count(); ++from) {
            all.push_back(mail_.take(from, rank_));
        }
        return all;
    }

  private:
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
