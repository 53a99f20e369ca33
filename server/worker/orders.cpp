#include "server/worker/orders.hpp"

#include <boost/asio/use_awaitable.hpp>
#include <utility>
#include <variant>

#include "base/scope_exit.hpp"
#include "server/support/log.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

struct Obey {
    RunControl& control;

    void operator()(const CancelCommand& command) const {
        if (!command.checkpoint) {
            control.forgo_last_checkpoint();
        }
        control.cancel();
    }
    void operator()(const CheckpointCommand&) const { control.request_checkpoint(); }
    void operator()(const SetLimitCommand& command) const { control.set_max_concurrent(command.max_concurrent); }
    void operator()(const WorkerStart&) const { log::warn("worker", "a second start was ignored"); }
};

}  // namespace

void RunControl::cancel() {
    if (ask_) {
        ask_();
    } else {
        end();
    }
}

void RunControl::join_ranks(std::function<void()> ask) {
    ask_ = std::move(ask);
    if (ask_ && cancelled_.exchange(false)) {
        ask_();
    }
}

void RunControl::end() {
    cancelled_ = true;
    cancel_signal_.emit(asio::cancellation_type::terminal);
    if (graph_ != nullptr) {
        graph_->cancel();
    }
}

void RunControl::forgo_last_checkpoint() {
    forgoes_last_checkpoint_ = true;
    if (graph_ != nullptr) {
        graph_->forgo_last_checkpoint();
    }
}

void RunControl::request_checkpoint() {
    if (graph_ != nullptr) {
        graph_->request_checkpoint();
    } else {
        checkpoint_requested_ = true;
    }
}

void RunControl::set_max_concurrent(std::uint32_t limit) {
    max_concurrent_ = limit;
    if (graph_ != nullptr) {
        graph_->set_max_concurrent(limit);
    }
}

void RunControl::attach(RunningGraph& graph) {
    graph_ = &graph;
    if (max_concurrent_) {
        graph.set_max_concurrent(*max_concurrent_);
    }
    if (std::exchange(checkpoint_requested_, false)) {
        graph.request_checkpoint();
    }
    if (forgoes_last_checkpoint_) {
        graph.forgo_last_checkpoint();
    }
    if (cancelled_) {
        graph.cancel();
    }
}

asio::awaitable<void> follow_orders(WorkerChannel& channel, RunControl& control) {
    // However the reading ends, no more orders will come.
    const ScopeExit ended([&control] { control.cancel(); });
    for (;;) {
        const Result<std::optional<DownMessage>> message = co_await channel.receive();
        if (!message) {
            log::warn("worker", message.error().message);
            if (message.error().kind == ErrorKind::io) {
                break;
            }
            continue;
        }
        if (!*message) {
            break;
        }
        std::visit(Obey{control}, **message);
    }
}

asio::awaitable<void> follow_signals(asio::signal_set& signals, RunControl& control) {
    for (;;) {
        co_await signals.async_wait(asio::use_awaitable);
        control.cancel();
    }
}

}  // namespace distilld
