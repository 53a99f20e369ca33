#include "server/cli/jobs/job_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "api/job_types.hpp"
#include "base/json_text.hpp"
#include "server/cli/jobs/job_find.hpp"

namespace distilld::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LinesBehind, GoOnFromWhatWasSeenLast) {
    EXPECT_EQ(lines_behind("", "a\nb\n"), "a\nb\n");
    EXPECT_EQ(lines_behind("a\nb\n", "a\nb\n"), "");
    EXPECT_EQ(lines_behind("a\nb\n", "a\nb\nc\n"), "c\n");
    EXPECT_EQ(lines_behind("a\n", "a\na\n"), "a\n");
    // The first lines are gone from the tail.
    std::string before;
    std::string now;
    for (int line = 0; line < 200; ++line) {
        before += std::to_string(line) + "\n";
        now += line < 100 ? "" : std::to_string(line) + "\n";
    }
    EXPECT_EQ(lines_behind(before, now + "200\n"), "200\n");
    EXPECT_EQ(lines_behind("gone\n", "new\n"), "new\n") << "more lines have come than a look takes in";
}

std::string text_of(api::JobState state, const std::string& id = "job-1", const std::string& name = "n") {
    api::Job job;
    job.id = id;
    job.state = state;
    job.name = name;
    return to_text(api::to_json_object(job, false));
}

/// A service whose job is in one state after the other, and has another log each time; status 0: nobody is there.
class ScriptedService final : public RestClient {
  public:
    struct Turn {
        unsigned status = 200;
        api::JobState state = api::JobState::running;
        std::string log{};
    };
    explicit ScriptedService(std::vector<Turn> turns) : turns_(std::move(turns)) {}

    Result<RestResponse> request(const std::string&, const std::string& target, const std::string&,
                                 const Headers&) override {
        asked.push_back(target);
        const bool of_log = target.find("/logs?") != std::string::npos;
        const Turn turn = turns_.at(std::min(next_, turns_.size() - 1));
        next_ += of_log || turn.status != 200 ? 1 : 0;
        if (turn.status == 0) {
            return io_error("http://service: Connection refused");
        }
        return RestResponse{turn.status, "", of_log ? turn.log : text_of(turn.state)};
    }
    Result<RestResponse> stream(const std::string&, const Headers&, const OnPiece&, std::chrono::seconds) override {
        throw std::logic_error("nothing is streamed");
    }

    std::vector<std::string> asked;

  private:
    std::vector<Turn> turns_;
    std::size_t next_ = 0;
};

TEST(FollowLog, PrintsEachLineOnceUntilTheJobHasEnded) {
    ScriptedService service({{200, api::JobState::running, "a\n"},
                             {200, api::JobState::running, "a\n"},
                             {0},
                             {503},
                             {200, api::JobState::running, "a\nb\n"},
                             {200, api::JobState::succeeded, "a\nb\nc\n"}});
    std::vector<std::string> printed;
    std::vector<std::string> complaints;
    int pauses = 0;
    FollowTools tools;
    tools.print = [&](const std::string& text) { printed.push_back(text); };
    tools.complain = [&](const std::string& line) { complaints.push_back(line); };
    tools.sleep = [&](std::chrono::seconds) { ++pauses; };
    EXPECT_TRUE(follow_log(service, "job-1", 10, tools));
    EXPECT_THAT(printed, ElementsAre("a\n", "b\n", "c\n"));
    EXPECT_THAT(complaints, ElementsAre(HasSubstr("Connection refused; asking again")));
    EXPECT_EQ(pauses, 5);
    EXPECT_EQ(service.asked.at(1), "/v1/jobs/job-1/logs?tail=10");
}

TEST(FollowLog, EndsWithWhatTheServiceRefuses) {
    ScriptedService service({{404}});
    FollowTools tools;
    EXPECT_FALSE(follow_log(service, "job-1", 10, tools));
}

/// A service with these jobs, by what is asked for.
class Catalogue final : public RestClient {
  public:
    std::string by_prefix;
    std::string by_name;
    std::vector<std::string> asked;

    Result<RestResponse> request(const std::string&, const std::string& target, const std::string&,
                                 const Headers&) override {
        asked.push_back(target);
        return RestResponse{
            200, "", R"({"data":[)" + (target.find("id_prefix=") != std::string::npos ? by_prefix : by_name) + "]}"};
    }
    Result<RestResponse> stream(const std::string&, const Headers&, const OnPiece&, std::chrono::seconds) override {
        throw std::logic_error("nothing is streamed");
    }
};

TEST(FindJob, TakesTheOneThatIsMeant) {
    using enum api::JobState;
    Catalogue service;
    EXPECT_EQ(find_job(service, "job-0123456789abcdef01234567").value(), "job-0123456789abcdef01234567");
    EXPECT_TRUE(service.asked.empty()) << "a whole id is not looked for";
    EXPECT_EQ(find_job(service, "nobody").value(), "nobody");
    service.by_prefix = text_of(succeeded, "job-1");
    EXPECT_EQ(find_job(service, "job-").value(), "job-1");
    service.by_name = text_of(succeeded, "job-1") + "," + text_of(failed, "job-2");
    EXPECT_THAT(find_job(service, "n").error().message,
                ::testing::AllOf(HasSubstr("'n' matches 2 jobs, and all of them have ended"),
                                 HasSubstr("job-1  succeeded"), HasSubstr("job-2  failed")));
    service.by_name += "," + text_of(queued, "job-3");
    EXPECT_EQ(find_job(service, "n").value(), "job-3");
    service.by_name += "," + text_of(running, "job-4");
    EXPECT_THAT(find_job(service, "n").error().message, HasSubstr("2 of them have not ended"));
    EXPECT_EQ(find_job(service, "job-1").value(), "job-1") << "an id goes before a name";
}

}  // namespace
}  // namespace distilld::cli
