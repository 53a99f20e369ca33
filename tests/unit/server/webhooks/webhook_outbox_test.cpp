#include "server/webhooks/webhook_outbox.hpp"

#include <gtest/gtest.h>

#include "server/jobs/store/sqlite_job_store.hpp"
#include "server/support/sqlite.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld::webhooks {
namespace {

using api::JobState;

class WebhookOutboxTest : public ::testing::Test {
  protected:
    void add_job(const std::string& id) {
        stored_.job.id = id;
        stored_.job.state = JobState::queued;
        store_->create(stored_);
    }
    void set_state(JobState state) {
        stored_.job.state = state;
        stored_.job.finished_at = api::is_terminal(state) ? "2026-01-01T00:00:00.000Z" : "";
        store_->append_event(stored_.job.id, {}, {.state = &stored_});
    }
    std::int64_t events() { return sqlite::Database(file_).query_integer("SELECT count(*) FROM webhook_events"); }

    test::TemporaryFolder folder_;
    std::filesystem::path file_ = folder_ / "jobs.sqlite";
    std::unique_ptr<JobStore> store_ = open_sqlite_job_store(file_).value();
    std::unique_ptr<WebhookOutbox> outbox_ = open_webhook_outbox(file_).value();
    StoredJob stored_;
};

TEST_F(WebhookOutboxTest, HasAnEventForEachEndAndReceiver) {
    outbox_->set_receivers({"http://a/", "http://b/", "http://a/"});
    add_job("job-1");
    set_state(JobState::running);
    EXPECT_EQ(events(), 0);
    set_state(JobState::failed);
    set_state(JobState::failed);  // told once
    EXPECT_EQ(events(), 2);
    const auto event = outbox_->due("http://a/", 0);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->id.size(), 28U);
    EXPECT_EQ(event->job_id, "job-1");
    EXPECT_EQ(event->type, "job.failed");
    EXPECT_EQ(event->created_at, "2026-01-01T00:00:00.000Z");
    EXPECT_EQ(event->attempts, 0U);
    EXPECT_NE(outbox_->due("http://b/", 0)->id, event->id);
    set_state(JobState::queued);  // resumed
    set_state(JobState::succeeded);
    EXPECT_EQ(events(), 4);
    // It is not lost with its job.
    EXPECT_TRUE(store_->remove("job-1"));
    EXPECT_EQ(events(), 4);
}

TEST_F(WebhookOutboxTest, KeepsWhatIsToBeTriedAgain) {
    outbox_->set_receivers({"http://a/"});
    add_job("job-1");
    set_state(JobState::cancelled);
    add_job("job-2");
    set_state(JobState::succeeded);
    const auto first = *outbox_->due("http://a/", 100);
    outbox_->set_body(first.number, "body");
    outbox_->try_again(first.number, 1, 110.5);
    outbox_.reset();
    outbox_ = open_webhook_outbox(file_).value();
    outbox_->set_receivers({"http://a/"});
    const auto second = *outbox_->due("http://a/", 100);
    EXPECT_EQ(second.job_id, "job-2");
    outbox_->remove(second.number);
    EXPECT_FALSE(outbox_->due("http://a/", 110.4));
    const auto again = outbox_->due("http://a/", 110.5);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->id, first.id);
    EXPECT_EQ(again->body, "body");
    EXPECT_EQ(again->attempts, 1U);
}

TEST_F(WebhookOutboxTest, DropsWhatNobodyReceivesAnyMore) {
    add_job("job-0");
    set_state(JobState::failed);
    EXPECT_EQ(events(), 0);  // there is no receiver
    outbox_->set_receivers({"http://a/"});
    add_job("job-1");
    set_state(JobState::failed);
    outbox_->set_receivers({"http://b/"});
    EXPECT_EQ(events(), 0);
}

}  // namespace
}  // namespace distilld::webhooks
