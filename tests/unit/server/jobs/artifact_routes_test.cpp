#include "server/jobs/routes/artifact_routes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/server/jobs/routes_fixture.hpp"

namespace distilld {
namespace {

using test::wait_for_state;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr const char* kRoute = "/v1/jobs/{id}/artifacts";

class ArtifactRoutes : public test::RoutesTest {
  protected:
    /// A job that has succeeded, with a model of 700,000 bytes in the folder "out".
    std::string succeeded() {
        const auto id = submitted("out");
        const auto worker = world_.fleet.next();
        std::filesystem::create_directories(output() / "merged");
        std::ofstream(output() / "model.safetensors") << std::string(700'000, 'w');
        std::ofstream(output() / "merged" / "a \"b\"") << "merged";
        std::ofstream(output() / "distilld.json") << R"({"files":["model.safetensors","merged/a \"b\""]})";
        finish(worker);
        wait_for_state(*world_.manager, id, api::JobState::succeeded);
        return id;
    }
    [[nodiscard]] std::filesystem::path output() const { return world_.folder.path() / "out"; }
};

TEST_F(ArtifactRoutes, StreamTheFolderAsATar) {
    const auto id = succeeded();
    const auto response = get(kRoute, id);
    EXPECT_EQ(response.status, 200U);
    EXPECT_EQ(response.content_type, "application/x-tar");
    EXPECT_THAT(response.headers, Contains(Pair("Content-Disposition", "attachment; filename=\"" + id + ".tar\"")));
    EXPECT_FALSE(response.content_length);
    const auto tar = drain(*response.stream);
    EXPECT_GT(tar.size(), 700'000U);
    EXPECT_EQ(tar.size() % 512, 0U);
    EXPECT_THAT(tar.substr(0, 512), HasSubstr("merged/"));
}

TEST_F(ArtifactRoutes, GiveOneFileAsItIs) {
    const auto id = succeeded();
    const auto response = get(kRoute, id, {{"path", "model.safetensors"}});
    EXPECT_EQ(response.status, 200U);
    EXPECT_EQ(response.content_type, "application/octet-stream");
    EXPECT_EQ(response.content_length, 700'000U);
    EXPECT_EQ(drain(*response.stream), std::string(700'000, 'w'));
    const auto odd = get(kRoute, id, {{"path", "merged/a \"b\""}});
    EXPECT_THAT(odd.headers, Contains(Pair("Content-Disposition", "attachment; filename=\"a__b_\"")));
    EXPECT_EQ(drain(*odd.stream), "merged");
}

TEST_F(ArtifactRoutes, SayWhatThereIsNot) {
    EXPECT_EQ(get(kRoute, "nobody").status, 404U);
    const auto running = submitted("other");
    const auto worker = world_.fleet.next();
    const auto early = get(kRoute, running);
    EXPECT_EQ(early.status, 409U);
    EXPECT_EQ(code(early), "no_artifacts");
    EXPECT_THAT(early.body, HasSubstr("it is running"));
    worker->emit(FailedEvent{"teacher", "gone"}, worker);
    worker->end(worker, WorkerExit{1, ""});
    wait_for_state(*world_.manager, running, api::JobState::failed);
    EXPECT_EQ(code(get(kRoute, running)), "no_artifacts");

    const auto id = succeeded();
    for (const auto* path : {"../jobs.sqlite", "/etc/passwd", "nobody", "merged", ""}) {
        const auto response = get(kRoute, id, {{"path", path}});
        EXPECT_EQ(response.status, 404U) << path;
        EXPECT_EQ(code(response), "artifact_not_found") << path;
    }
    EXPECT_EQ(get(kRoute, id, {{"file", "x"}}).status, 400U);
    std::filesystem::remove_all(output());
    const auto gone = get(kRoute, id);
    EXPECT_EQ(gone.status, 404U);
    EXPECT_EQ(code(gone), "artifacts_gone");
}

TEST_F(ArtifactRoutes, F2AnOutputThatMayNotBeNamedAnyMoreIsNotRead) {
    const auto id = succeeded();
    std::string refused;
    const SpecPolicy policy = [&refused](const JobSpec& spec) {
        api::SpecViolations found;
        if (spec.output == refused) {
            found.violations.push_back({"/output", "path_not_allowed", "a link leads elsewhere"});
        }
        return found;
    };
    routes_ = make_artifact_routes(*world_.manager, policy);
    EXPECT_EQ(get(kRoute, id).status, 200U);
    refused = std::filesystem::canonical(output()).string();
    EXPECT_EQ(code(get(kRoute, id)), "artifacts_gone");
    EXPECT_EQ(code(get(kRoute, id, {{"path", "model.safetensors"}})), "artifacts_gone");
}

TEST_F(ArtifactRoutes, AreForTheOwnersKeyAndAdministrators) {
    const auto id = succeeded();  // nobody's
    const auto as = [&](http::Role role) {
        http::Request request;
        request.path_parameters = {{"id", id}};
        request.caller = http::Caller{"ann", role, "key-ann"};
        return call("GET", kRoute, std::move(request));
    };
    for (const auto role : {http::Role::read, http::Role::submit}) {
        const auto refused = as(role);
        EXPECT_EQ(refused.status, 403U);
        EXPECT_EQ(code(refused), "not_your_job");
    }
    EXPECT_EQ(as(http::Role::admin).status, 200U);
}

}  // namespace
}  // namespace distilld
