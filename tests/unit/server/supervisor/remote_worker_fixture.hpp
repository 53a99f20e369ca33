#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/job_spec.hpp"
#include "pipeline/async/condition.hpp"
#include "server/protocol/numbered_link.hpp"
#include "server/protocol/relay_messages.hpp"
#include "server/supervisor/remote_worker.hpp"
#include "tests/unit/server/supervisor/fake_worker_run.hpp"

namespace distilld::test {

namespace asio = boost::asio;
/// Says what was done to it, in order.
class NotedRecord final : public AttemptRecord {
  public:
    explicit NotedRecord(std::vector<std::string>& notes) : notes_(notes) {}

    Stored stored() const override { return now; }
    bool set_token(std::string token_hash) override {
        now.token_hash = std::move(token_hash);
        return writable;
    }
    bool set_place(std::string place) override {
        now.place = std::move(place);
        return writable;
    }
    void begin_message(std::uint64_t number) override {
        now.received = number;
        notes_.push_back("begin " + std::to_string(number));
    }
    void end_message() override {
        notes_.emplace_back("end");
        if (writable) {
            now_saved = now.received;
        }
    }
    void save() override {
        if (writable) {
            now_saved = now.received;
        }
    }
    std::uint64_t saved() const override { return now_saved; }

    Stored now;
    std::uint64_t now_saved = 0;
    bool writable = true;

  private:
    std::vector<std::string>& notes_;
};

/// What a test does with a place, which the worker owns.
struct PlaceControl {
    explicit PlaceControl(const asio::any_io_executor& executor) : changed(executor) {}
    void go(std::string why, std::string of_kind = kWorkerKilled) {
        gone = std::move(why);
        kind = std::move(of_kind);
        changed.notify();
    }

    Condition changed;
    PlaceWait waits;
    std::string kind;
    std::string token;
    std::string gone;
    std::string failure;
    int begun = 0;
    int cancels = 0;
};

class NotedPlace final : public Place {
  public:
    explicit NotedPlace(std::shared_ptr<PlaceControl> control) : control_(std::move(control)) {}
    asio::awaitable<Result<std::string>> begin(RelayOrder order) override {
        ++control_->begun;
        control_->token = order.token;
        if (!control_->failure.empty()) {
            co_return io_error(control_->failure);
        }
        co_return "place-7";
    }
    asio::awaitable<PlaceEnd> ended() override {
        while (control_->gone.empty()) {
            co_await control_->changed.wait();
        }
        co_return PlaceEnd{control_->kind, control_->gone};
    }
    void tell_of_waits(PlaceWait waits) override { control_->waits = std::move(waits); }
    void cancel() override { ++control_->cancels; }

  private:
    std::shared_ptr<PlaceControl> control_;
};

/// A remote worker, its place and its relay.
class RemoteWorkerTest : public ::testing::Test {
  protected:
    void make(bool adopted = false) {
        RemoteWorkerOptions options;
        options.attempt = {"job_1", 2};
        options.record = record;
        options.place = std::make_unique<NotedPlace>(place);
        options.adopted = adopted;
        options.output = [this](const std::string& line) { notes.push_back("said " + line); };
        options.gone_grace = std::chrono::seconds(0);
        options.kill_grace = kill_grace;
        worker = make_remote_worker(context.get_executor(), attempts, std::move(options));
    }
    void run() {
        WorkerStart start;
        start.spec_json = R"({"name":"n"})";
        start.spec = spec;
        start.job_id = "job_1";
        start.attempt = 2;
        auto running = worker->run(std::move(start), [this](const WorkerEvent& event) {
            notes.emplace_back("event " + std::string(std::visit(
                                              [](const auto& one) {
                                                  return row_of<std::remove_cvref_t<decltype(one)>>(kWorkerEvents).name;
                                              },
                                              event)));
            outcome.events.push_back(event);
        });
        asio::co_spawn(context, std::move(running),
                       [this](const std::exception_ptr&, Result<WorkerExit> exit) { outcome.exit = std::move(exit); });
        turn();
    }
    /// All that can be done is done.
    void turn() {
        context.restart();
        context.poll();
    }
    void connect() {
        port = attempts.find(record->now.token_hash);
        ASSERT_NE(port, nullptr);
        connection = port->connect();
        relay.connect();
        asio::co_spawn(context, hear(connection), [](const std::exception_ptr&) {});
        exchange();
    }
    asio::awaitable<void> hear(std::uint64_t over) {
        for (;;) {
            auto message = co_await port->next(over);
            if (message.closed) {
                closings.push_back(message.closed->code);
                co_return;
            }
            const auto taken = relay.take(message.text);
            EXPECT_TRUE(taken.has_value()) << taken.error().message;
            if (taken && taken->line) {
                orders.push_back(open_line(*taken->line).value().type);
                if (orders.back() == "start") {
                    got = std::get<WorkerStart>(decode_message<kToRelay>(*taken->line).value());
                }
                relay.confirm(relay.received());
            }
        }
    }
    void exchange() {
        bool moved = true;
        while (moved) {
            moved = false;
            turn();
            while (auto frame = relay.next()) {
                moved = true;
                EXPECT_EQ(port->take(connection, *std::move(frame)), std::nullopt);
            }
        }
    }
    void say(const FromRelay& message) {
        relay.push(encode_message<kFromRelay>(message));
        exchange();
    }

    void end_unasked(const char* kind_of_place) {
        kill_grace = std::chrono::seconds(60);
        make();
        run();
        connect();
        say(CancelledEvent{});
        say(EndMessage{});
        EXPECT_THAT(closings, testing::ElementsAre(kAttemptOver)) << "the relay need not wait";
        EXPECT_THAT(outcome.events, testing::IsEmpty()) << "nobody knows yet who wanted it";
        place->go("somebody did it", kind_of_place);
        turn();
    }

    asio::io_context context{1};
    std::vector<std::string> notes;
    std::shared_ptr<NotedRecord> record = std::make_shared<NotedRecord>(notes);
    std::chrono::seconds kill_grace{0};
    std::shared_ptr<PlaceControl> place = std::make_shared<PlaceControl>(context.get_executor());
    RemoteAttempts attempts;
    std::unique_ptr<WorkerProcess> worker;
    std::shared_ptr<AttemptPort> port;
    std::uint64_t connection = 0;
    NumberedLink relay{{}, 0, 0};
    std::vector<std::string> orders;  ///< that the relay got
    std::shared_ptr<const JobSpec> spec;
    WorkerStart got;                      ///< of the relay
    std::vector<std::uint16_t> closings;  ///< of connections
    Outcome outcome;
};

}  // namespace distilld::test
