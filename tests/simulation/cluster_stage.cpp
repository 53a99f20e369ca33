#include "tests/simulation/cluster_stage.hpp"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>

#include "pipeline/async/failure_message.hpp"

namespace distilld::test {

Millis Stage::now() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(clock_.now().time_since_epoch()).count();
}

void Stage::tell(const std::string& what) const {
    if (options_.trace) {
        std::printf("%10.3f %s\n", static_cast<double>(now()) / 1000, what.c_str());
    }
}

void Stage::violate(const std::string& what) {
    tell("VIOLATION " + what);
    result.violations.push_back(std::to_string(now()) + " ms: " + what);
}

bool Stage::step() {
    std::optional<VirtualClock::Time> next;
    if (!events_.empty()) {
        next = VirtualClock::Time(std::chrono::milliseconds(events_.top().at));
    }
    for (const auto& process : processes_) {
        const auto due = process->stopped() ? std::nullopt : clock_.next(process->timers());
        next = next && due ? std::min(*next, *due) : next ? next : due;
    }
    if (!next) {
        return false;
    }
    clock_.advance(std::max(*next, clock_.now()));
    for (const auto& process : processes_) {
        const auto due = clock_.next(process->timers());
        if (!process->stopped() && due && *due <= clock_.now()) {
            clock_.fire(process->timers());
            process->touched = true;
        }
    }
    if (!events_.empty() && events_.top().at <= now()) {
        const Event event = events_.top();
        events_.pop();
        event.work();
    }
    settle();
    return true;
}

void Stage::settle() {
    for (bool any = true; std::exchange(any, false);) {
        for (std::size_t i = 0; i < processes_.size(); ++i) {
            const auto process = processes_[i];
            if (process->alive() && !process->stopped() && std::exchange(process->touched, false)) {
                process->run_ready();
                any = true;
            }
        }
    }
    std::vector<std::shared_ptr<Process>> dead;  // their ends may tell others
    std::erase_if(processes_, [&dead](const auto& process) {
        if (!process->alive()) {
            dead.push_back(process);
        }
        return !process->alive();
    });
    for (const auto& process : dead) {
        clock_.forget(process->timers());
    }
}

void Stage::clear() {
    for (const auto& process : processes_) {
        process->kill();
    }
    settle();
}

void Process::begin() {
    const boost::asio::steady_timer timer(io());
    timers_ = stage_.clock().newest();
    touched = true;
}

void Process::post(std::function<void()> work) {
    if (alive_) {
        boost::asio::post(io(), std::move(work));
        touched = true;
    }
}

void Process::later(Millis delay, std::function<void()> work) {
    stage_.at(delay, [self = weak_from_this(), work = std::move(work)] {
        if (const auto process = self.lock()) {
            process->post(work);
        }
    });
}

void Process::kill() {
    if (std::exchange(alive_, false)) {
        stage_.tell(name_ + " has ended");
        on_kill();
    }
}

void Process::stop() {
    stage_.tell(name_ + " is stopped");
    stopped_ = true;
}

void Process::go_on() {
    if (std::exchange(stopped_, false) && alive_) {
        stage_.tell(name_ + " goes on");
        touched = true;
    }
}

void Process::run_ready() {
    for (;;) {
        try {
            io().restart();
            while (alive_ && io().poll_one() > 0) {
            }
            return;
        } catch (const Killed&) {
            return;
        } catch (...) {
            stage_.violate(name_ + ": " + failure_message(std::current_exception()));
        }
        if (!alive_) {
            return;
        }
    }
}

}  // namespace distilld::test
