#include "server/cli/jobs/job_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/json_text.hpp"

namespace distilld::cli {
namespace {

using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string event(int id, const std::string& message) {
    api::JobEvent one;
    one.sequence = static_cast<std::uint64_t>(id);
    one.message = message;
    return "id: " + std::to_string(id) + "\nevent: log\ndata: " + to_text(api::to_json_object(one)) + "\n\n";
}

std::string done() {
    api::Job job;
    job.id = "job-1";
    job.state = api::JobState::succeeded;
    return "event: done\ndata: " + to_text(api::to_json_object(job, false)) + "\n\n";
}

/// What the service does each time that it is asked for the stream; the last of it again and again.
class ScriptedClient final : public RestClient {
  public:
    struct Turn {
        unsigned status = 200;  ///< 0: nobody is there
        std::string stream{};
        bool cut = false;  ///< the stream breaks off, as when the service is killed
    };
    explicit ScriptedClient(std::vector<Turn> turns) : turns_(std::move(turns)) {}

    Result<RestResponse> request(const std::string&, const std::string&, const std::string&, const Headers&) override {
        throw std::logic_error("only the stream is asked for");
    }
    Result<RestResponse> stream(const std::string& target, const Headers& headers, const OnPiece& on_piece,
                                seconds) override {
        EXPECT_EQ(target, "/v1/jobs/job-1/events");
        last_ids.emplace_back(headers.size() > 1 ? headers.at(1).second : "");
        const Turn turn = turns_.at(std::min(next_++, turns_.size() - 1));
        if (turn.status == 0) {
            return io_error("http://service: Connection refused");
        }
        if (!turn.stream.empty()) {
            on_piece(turn.stream);
        }
        if (turn.cut) {
            return io_error("http://service: partial message");
        }
        return RestResponse{turn.status, "", turn.status == 200 ? "" : R"({"detail":"not now"})"};
    }

    std::vector<std::string> last_ids;

  private:
    std::vector<Turn> turns_;
    std::size_t next_ = 0;
};

struct Watched {
    explicit Watched(std::vector<ScriptedClient::Turn> turns) : client(std::move(turns)) {
        WatchTools tools;
        tools.print = [this](const std::string& text) { printed += text; };
        tools.complain = [this](const std::string& line) { complaints.push_back(line); };
        tools.now = [this] { return now; };
        tools.sleep = [this](seconds time) {
            pauses.push_back(time.count());
            now += time;
            if (pauses.size() > 1000) {
                throw std::runtime_error("it asks for ever");
            }
        };
        job = watch_job(client, "job-1", false, tools);
    }
    ScriptedClient client;
    std::chrono::steady_clock::time_point now;
    std::vector<std::int64_t> pauses;
    std::string printed;
    std::vector<std::string> complaints;
    std::optional<api::Job> job;
};

TEST(JobWatch, FollowsAJobOverARestartOfTheService) {
    const Watched watched({{.stream = event(1, "one"), .cut = true},
                           {.status = 0},
                           {.status = 503},
                           {.status = 502},
                           {.stream = event(2, "two")},
                           {.status = 0},
                           {.stream = event(3, "three") + done()}});
    ASSERT_TRUE(watched.job);
    EXPECT_EQ(watched.job->state, api::JobState::succeeded);
    EXPECT_THAT(watched.client.last_ids, ElementsAre("", "1", "1", "1", "1", "2", "2"));
    EXPECT_THAT(watched.pauses, ElementsAre(1, 2, 4, 8, 1, 2));  // an answer makes it brisk again
    for (const char* word : {"one", "two", "three"}) {
        EXPECT_THAT(watched.printed, HasSubstr(word));
    }
    // One word for each absence.
    EXPECT_THAT(watched.complaints, ElementsAre(HasSubstr("Connection refused; asking again"),
                                                HasSubstr("Connection refused; asking again")));
}

TEST(JobWatch, GivesUpOnAServiceThatKeepsFailing) {
    for (const unsigned status : {500U, 503U, 0U, 200U}) {
        const Watched watched({{.stream = event(1, "one")}, {.status = status}});
        EXPECT_FALSE(watched.job) << status;
        EXPECT_EQ(watched.now.time_since_epoch(), seconds(120)) << status;
        EXPECT_LE(watched.pauses.size(), 15U) << status;
        ASSERT_EQ(watched.complaints.size(), 2U) << status;
        EXPECT_THAT(watched.complaints.back(), HasSubstr("gave up after 120 s"));
    }
}

TEST(JobWatch, WaitsForAServiceThatIsStarting) {
    const Watched watched({{.status = 503}, {.stream = done()}});
    EXPECT_TRUE(watched.job);
    EXPECT_THAT(watched.complaints, ElementsAre("503 Service Unavailable: not now; asking again"));
}

TEST(JobWatch, EndsAtOnceWhenThereIsNothingToWaitFor) {
    const Watched nobody({{.status = 0}});
    EXPECT_FALSE(nobody.job);
    EXPECT_TRUE(nobody.pauses.empty());
    EXPECT_THAT(nobody.complaints, ElementsAre("http://service: Connection refused"));
    const Watched unknown({{.status = 404}});
    EXPECT_FALSE(unknown.job);
    EXPECT_THAT(unknown.complaints, ElementsAre("404 Not Found: not now"));
    const Watched lost({{.stream = event(1, "one")}, {.status = 404}});
    EXPECT_FALSE(lost.job);
    EXPECT_EQ(lost.pauses.size(), 1U);
}

}  // namespace
}  // namespace distilld::cli
