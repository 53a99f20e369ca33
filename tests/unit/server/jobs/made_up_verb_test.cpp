/// The recipe for a verb of a job, followed with a made-up one: "calm" lets a running job ask its teacher less. Its row
/// is all that route, command, order to the worker and refusals need.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>
#include <utility>

#include "server/cli/jobs/jobs_options.hpp"
#include "server/jobs/routes/job_verb_routes.hpp"
#include "server/jobs/table/job_table.hpp"
#include "tests/unit/server/jobs/routes_fixture.hpp"

namespace distilld {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

JobVerdict calm(JobTable& table, const std::string& id, bool gently, JobTable::Time) {
    return table.tell(id, SetLimitCommand{gently ? 2U : 1U}, "calm requested");
}

constexpr JobVerb kVerbs[] = {{.name = "calm",
                               .help = "Make a running job ask its teacher less",
                               .ask = calm,
                               .ended = JobVerdict::not_running,
                               .option = "gently",
                               .option_off = "--at-once",
                               .option_help = "one request at a time"}};

class MadeUpVerb : public test::RoutesTest {
  protected:
    MadeUpVerb() {
        for (auto& route : make_job_verb_routes(*world_.manager, kVerbs)) {
            routes_.push_back(std::move(route));
        }
    }
    http::Response ask(const std::string& id, test::Query query = {}) {
        http::Request request;
        request.path_parameters = {{"id", id}};
        request.query = std::move(query);
        return call("POST", "/v1/jobs/{id}/calm", std::move(request));
    }
};

TEST_F(MadeUpVerb, IsARouteThatGivesTheWorkerItsOrder) {
    const auto id = submitted("a");
    const auto worker = world_.fleet.next();
    const auto answer = ask(id);
    EXPECT_EQ(answer.status, 202U);
    EXPECT_EQ(body(answer).at("id").as_string(), id);
    EXPECT_EQ(ask(id, {{"gently", "false"}}).status, 202U) << "to ask again is not an error";
    EXPECT_THAT(worker->told, ElementsAre("limit 2", "limit 1"));
    EXPECT_THAT(world_.history(id), Contains("message: calm requested"));
}

TEST_F(MadeUpVerb, IsRefusedAsItsRowSays) {
    EXPECT_EQ(code(ask("nobody")), "job_not_found");
    const auto running = submitted("a");
    const auto worker = world_.fleet.next();
    const auto waiting = submitted("b");
    EXPECT_EQ(code(ask(waiting)), "job_is_not_running");
    EXPECT_EQ(code(ask(running, {{"checkpoint", "false"}})), "unknown_parameter") << "an option of another verb";
    finish(worker);
    test::wait_for_state(*world_.manager, running, api::JobState::succeeded);
    EXPECT_EQ(code(ask(running)), "job_is_not_running") << "ended";
}

TEST_F(MadeUpVerb, IsACommandOfTheCommandLine) {
    CLI::App app;
    cli::JobsCommand command;
    cli::add_jobs_options(app, command, kVerbs);
    app.parse("calm job-1");
    EXPECT_EQ(command.verb, kVerbs);
    EXPECT_EQ(command.subject, "job-1");
    EXPECT_TRUE(command.verb_option);
    app.parse("calm job-1 --at-once");
    EXPECT_FALSE(command.verb_option);
    EXPECT_THAT(app.get_subcommand("calm")->help(), HasSubstr("Make a running job ask its teacher less"));
}

}  // namespace
}  // namespace distilld
