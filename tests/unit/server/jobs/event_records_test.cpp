#include "server/jobs/store/event_records.hpp"

#include <gtest/gtest.h>

#include <tuple>

#include "base/json_text.hpp"

namespace distilld {
namespace {

std::string as_text(const api::JobEvent& record) {
    return to_text(api::to_json_object(record));
}

TEST(EventRecords, KeepOfProgressWhatAHistoryNeeds) {
    ProgressEvent event;
    event.step = 5;
    event.total_steps = 40;
    event.loss = 2.34567;
    event.stages.push_back({"student", 1, 2, 3});
    event.fetch.requests = 9;
    event.fetch.endpoints.push_back({"http://a/", 1, 2, true, {{"success", 3}}});
    event.durations.steps.observe(1);
    event.measures.queues.push_back({"student", 1, 1});
    event.fetch.in_flight = 4;
    event.fetch.retries = 2;
    EXPECT_EQ(as_text(record_of(event)),
              R"({"sequence":0,"object":"job.event","created_at":"","level":"info","type":"metrics",)"
              R"("message":"step 5 of 40, loss 2.346 nats/token",)"
              R"("data":{"percent":12.5,"generates":false,"of_samples":false,"step":5,"total_steps":40,)"
              R"("seconds_remaining":0,"seconds_elapsed":0,"tokens":0,"padding_tokens":0,"tokens_per_second":0,)"
              R"("loss":2.34567,"kd_loss":0,)"
              R"("ce_loss":0,"grad_norm":0,"learning_rate":0,"stall_fraction":0,"teacher_hidden_fraction":0,)"
              R"("bottleneck":"","nonfinite_steps":0,"fetch":{"in_flight":4,"concurrency":0,"buffered":0,"retries":2,)"
              R"("hedges":0,"store":null},"rollout":null}})");
}

TEST(EventRecords, HoldTheFieldsOfTheOtherEvents) {
    EXPECT_EQ(as_text(record_of(StartedEvent{1, 2, 3, 4, 5, 6, "bf16", "a teacher", 6, 7, "bytes"})),
              R"({"sequence":0,"object":"job.event","created_at":"","level":"info","type":"message",)"
              R"("message":"training resumed at step 2; tokenizer: bytes; teacher: a teacher",)"
              R"("data":{"total_steps":1,"first_step":2,)"
              R"("parameters":3,"dataset_rows":4,"dataset_tokens":5,"dataset_tokens_read":6,)"
              R"("dtype":"bf16","teacher":"a teacher",)"
              R"("batch_size":6,"micro_batches":7,"tokenizer":"bytes","store":"","of_samples":false,"replicas":0,)"
              R"("ranks":0}})");
    EXPECT_EQ(as_text(record_of(EvaluationEvent{1, 2.5, 3})),
              R"({"sequence":0,"object":"job.event","created_at":"","level":"info","type":"evaluation",)"
              R"("message":"step 1, held-out cross entropy 2.5 nats/token",)"
              R"("data":{"step":1,"loss":2.5,"tokens":3,"kl":null,)"
              R"("top1_agreement":null,"acceptance_rate":null,"samples":[],"of_samples":false}})");
    EXPECT_EQ(as_text(record_of(EvaluationEvent{1, 2.5, 3, 0.5, 0.75, 0.875, {{"Once", " upon"}}})),
              R"({"sequence":0,"object":"job.event","created_at":"","level":"info","type":"evaluation",)"
              R"("message":"step 1, held-out cross entropy 2.5 nats/token",)"
              R"("data":{"step":1,"loss":2.5,"tokens":3,"kl":0.5,)"
              R"("top1_agreement":0.75,"acceptance_rate":0.875,)"
              R"("samples":[{"prompt":"Once","text":" upon"}],"of_samples":false}})");
    EXPECT_EQ(as_text(record_of(FiguresEvent{7, {{"acc", 0.125}, {"tasks/arc", 3}}, 2.5})),
              R"({"sequence":0,"object":"job.event","created_at":"","level":"info","type":"figures",)"
              R"("message":"step 7, eval.command: acc 0.125, tasks/arc 3",)"
              R"("data":{"step":7,"figures":{"acc":0.125,"tasks/arc":3},"seconds":2.5,"problem":""}})");
    EXPECT_EQ(as_text(record_of(FiguresEvent{7, {}, 2.5, "it exited with code 3"})),
              R"({"sequence":0,"object":"job.event","created_at":"","level":"warn","type":"figures",)"
              R"("message":"step 7, eval.command: it exited with code 3",)"
              R"("data":{"step":7,"figures":{},"seconds":2.5,"problem":"it exited with code 3"}})");
    EXPECT_EQ(as_text(record_of(RolloutEvent{7, 6, {{"Once", " upon", 2, true, -0.5}}})),
              R"({"sequence":0,"object":"job.event","created_at":"","level":"info","type":"rollout",)"
              R"("message":"step 7, answers of the student after 6 steps",)"
              R"("data":{"step":7,"version":6,"samples":[{"prompt":"Once","text":" upon","tokens":2,"cut":true,)"
              R"("log_probability":-0.5}]}})");
    EXPECT_EQ(record_of(RolloutEvent{2, 1}).message, "step 2, answers of the student after 1 step");
    FiguresEvent many{1};
    for (const char letter : std::string("abcdefghi")) {
        many.figures[std::string(1, letter)] = 1;
    }
    EXPECT_EQ(record_of(many).message, "step 1, eval.command: a 1, b 1, c 1, d 1, e 1, f 1, g 1, h 1, …");
    EXPECT_EQ(
        as_text(record_of(CheckpointEvent{1, "folder", 2.5})),
        R"({"sequence":0,"object":"job.event","created_at":"","level":"info","type":"checkpoint",)"
        R"("message":"checkpoint of step 1 in folder","data":{"step":1,"folder":"folder","seconds":2.5,"bytes":0}})");
    EXPECT_EQ(as_text(record_of(LogEvent{"warn", "text"})),
              R"({"sequence":0,"object":"job.event","created_at":"","level":"warn","type":"message",)"
              R"("message":"text","data":{}})");
    EXPECT_EQ(record_of(LogEvent{"shouting", "text"}).level, "info");
}

// What CONTRIBUTING says of adding an event and a field, done here.

struct ThrottledEvent {
    std::uint64_t step = 0;
    double celsius = 0;
};

template <class Visitor, Describes<ThrottledEvent> T>
void describe(Visitor& v, T& e) {
    v("step", e.step);
    v("celsius", e.celsius);
}

constexpr std::tuple kGrownEvents = std::tuple_cat(kWorkerEvents, std::tuple(EventRow<ThrottledEvent>{"throttled"}));

TEST(ANewEvent, IsRecordedUnderItsNameWithItsFields) {
    EXPECT_EQ(as_text(record_of<kGrownEvents>(ThrottledEvent{7, 96.5})),
              R"({"sequence":0,"object":"job.event","created_at":"","level":"info","type":"message",)"
              R"("message":"throttled","data":{"step":7,"celsius":96.5}})");
}

struct ProgressWithPower : ProgressEvent {
    double watts = 0;
};

template <class Visitor, Describes<ProgressWithPower> T>
void describe(Visitor& v, T& e) {
    using Known = std::conditional_t<std::is_const_v<T>, const ProgressEvent, ProgressEvent>;
    describe(v, static_cast<Known&>(e));
    v("watts", e.watts);
}

TEST(ANewField, IsInTheRecordAndInTheRestForm) {
    ProgressWithPower event;
    event.step = 1;
    event.total_steps = 4;
    event.watts = 250;
    const auto record = record_of(event);
    EXPECT_EQ(record.type, api::EventType::metrics);
    EXPECT_EQ(record.data.at("watts").to_number<double>(), 250);
    EXPECT_FALSE(record.data.contains("stages"));
    const auto rest = write_fields(api::WithPercent<ProgressWithPower>{event});
    EXPECT_EQ(rest.at("watts").to_number<double>(), 250);
    EXPECT_EQ(rest.at("percent").to_number<double>(), 25);
    EXPECT_TRUE(rest.contains("stages"));
}

}  // namespace
}  // namespace distilld
