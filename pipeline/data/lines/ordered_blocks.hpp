#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace distilld {

/// Runs three steps over reused blocks: one thread fills them in order, several work on them in any order, the caller
/// takes them in order. Blocks between filling and taking are bounded in number and in weight (bytes).
template <class Block>
class OrderedBlocks {
  public:
    struct Steps {
        std::function<bool(Block&)> fill;                 ///< false at the end
        std::function<std::size_t(const Block&)> weight;  ///< of a filled block
        std::function<void(std::size_t worker, Block&)> work;
        std::function<bool(Block&)> take;  ///< false: no more are wanted
    };

    OrderedBlocks(std::size_t workers, std::size_t max_weight, Steps steps)
        : steps_(std::move(steps)), max_weight_(max_weight), slots_(2 * workers + 2), workers_(workers) {}

    /// Returns when the last block was taken or `take` returns false. If a step throws, the exception is rethrown after
    /// the blocks before it. All threads have ended by then.
    void run() {
        std::vector<std::jthread> threads;
        try {
            threads.emplace_back([this] { fill_all(); });
            for (std::size_t worker = 0; worker < workers_; ++worker) {
                threads.emplace_back([this, worker] { work_on_all(worker); });
            }
            take_all();
        } catch (...) {
            stop();
            throw;
        }
        stop();
    }

  private:
    enum class State { free, filled, done };
    struct Slot {
        Block block;
        State state = State::free;
        std::size_t weight = 0;
        std::exception_ptr thrown;
    };

    Slot& slot(std::uint64_t number) { return slots_[number % slots_.size()]; }

    void fill_all() {
        for (std::uint64_t number = 0;; ++number) {
            Slot& next = slot(number);
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] {
                    return stopped_ || (next.state == State::free && (weight_ < max_weight_ || taken_ == filled_));
                });
                if (stopped_) {
                    return;
                }
            }
            bool more = false;
            next.thrown = nullptr;
            try {
                more = steps_.fill(next.block);
                next.weight = more ? steps_.weight(next.block) : 0;
            } catch (...) {
                next.thrown = std::current_exception();
            }
            const bool last = !more || next.thrown != nullptr;
            const std::lock_guard lock(mutex_);
            if (more || next.thrown != nullptr) {
                next.state = State::filled;
                weight_ += next.weight;
                ++filled_;
            }
            ended_ = last;
            changed_.notify_all();
            if (last) {
                return;
            }
        }
    }

    void work_on_all(std::size_t worker) {
        for (;;) {
            Slot* next = nullptr;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [this] { return stopped_ || begun_ < filled_ || ended_; });
                if (stopped_ || begun_ == filled_) {
                    return;
                }
                next = &slot(begun_++);
            }
            if (next->thrown == nullptr) {
                try {
                    steps_.work(worker, next->block);
                } catch (...) {
                    next->thrown = std::current_exception();
                }
            }
            const std::lock_guard lock(mutex_);
            next->state = State::done;
            changed_.notify_all();
        }
    }

    void take_all() {
        for (;;) {
            Slot& next = slot(taken_);
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] { return next.state == State::done || (ended_ && taken_ == filled_); });
                if (next.state != State::done) {
                    return;
                }
            }
            if (next.thrown != nullptr) {
                std::rethrow_exception(next.thrown);
            }
            if (!steps_.take(next.block)) {
                return;
            }
            const std::lock_guard lock(mutex_);
            next.state = State::free;
            weight_ -= next.weight;
            ++taken_;
            changed_.notify_all();
        }
    }

    void stop() {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
        changed_.notify_all();
    }

    Steps steps_;
    std::size_t max_weight_;
    std::vector<Slot> slots_;
    std::size_t workers_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint64_t filled_ = 0;
    std::uint64_t begun_ = 0;
    std::uint64_t taken_ = 0;
    std::size_t weight_ = 0;  // of filled blocks that are not taken yet
    bool ended_ = false;
    bool stopped_ = false;
};

}  // namespace distilld
