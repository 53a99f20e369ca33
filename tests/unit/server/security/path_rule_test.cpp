#include "server/security/path_rule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Paths : public ::testing::Test {
  protected:
    Paths() {
        for (const char* folder : {"root/models/student", "root/data", "outside/secrets", "service/logs"}) {
            fs::create_directories(base_ / folder);
        }
        std::ofstream(base_ / "root/data/train.jsonl") << "{}\n";
        std::ofstream(base_ / "outside/secrets/key.jsonl") << "{}\n";
    }
    JobSpec spec() const {
        JobSpec made;
        made.student.model = base_ / "root/models/student";
        made.dataset.train = {base_ / "root/data/train.jsonl"};
        made.output = base_ / "root/out";
        return made;
    }
    std::vector<std::string> refused(const JobSpec& spec) const { return refused(spec, options()); }
    static std::vector<std::string> refused(const JobSpec& spec, PathRuleOptions options) {
        std::vector<std::string> pointers;
        for (const auto& violation : PathRule(std::move(options)).check(spec).violations) {
            EXPECT_EQ(violation.code, "path_not_allowed");
            pointers.push_back(violation.pointer);
        }
        return pointers;
    }
    PathRuleOptions options() const { return {.roots = {base_ / "root"}}; }

    test::TemporaryFolder folder_;
    fs::path base_ = fs::canonical(folder_.path());
};

TEST_F(Paths, BelowARootAreAllowedWhetherThereOrNot) {
    EXPECT_THAT(refused(spec()), IsEmpty());
    JobSpec deep = spec();
    deep.output = base_ / "root/new/folder/below";
    EXPECT_THAT(refused(deep), IsEmpty());
}

TEST_F(Paths, ElsewhereAreRefusedEachByItsPointer) {
    JobSpec bad = spec();
    bad.student.model = "/etc";
    bad.student.tokenizer = "/usr";
    bad.dataset.train = {base_ / "root/data/train.jsonl", base_ / "outside/secrets/key.jsonl"};
    bad.checkpoint.dir = base_ / "rootless";
    bad.metrics.jsonl_file = "/tmp/x.jsonl";
    bad.output = base_ / "root/../outside/out";
    TeacherSpec teacher;
    teacher.store = "/var/store";
    teacher.ca_file = "/etc/hostname";
    bad.teachers["a"] = teacher;
    EXPECT_THAT(refused(bad), ::testing::UnorderedElementsAre(
                                  "/student/model", "/student/tokenizer", "/dataset/train/1", "/checkpoint/dir",
                                  "/metrics/jsonl_file", "/output", "/teachers/a/store", "/teachers/a/ca_file"));
}

TEST_F(Paths, LinksAreFollowedWhereverTheyLead) {
    fs::create_directory_symlink(base_ / "outside", base_ / "root/door");
    fs::create_symlink(base_ / "outside/not-there-yet", base_ / "root/dangling");
    fs::create_symlink("../../outside/secrets/key.jsonl", base_ / "root/data/relative.jsonl");
    fs::create_symlink("circle", base_ / "root/circle");
    fs::create_symlink(base_ / "root/data", base_ / "root/inside");
    for (const char* path :
         {"root/door", "root/door/secrets", "root/door/new/out", "root/dangling", "root/dangling/out", "root/circle"}) {
        JobSpec bad = spec();
        bad.output = base_ / path;
        EXPECT_THAT(refused(bad), ElementsAre("/output")) << path;
    }
    JobSpec data = spec();
    data.dataset.train = {base_ / "root/data/relative.jsonl"};
    EXPECT_THAT(refused(data), ElementsAre("/dataset/train"));
    // What the link leads to is not told.
    EXPECT_THAT(PathRule(options()).check(data).violations.at(0).detail, Not(HasSubstr("secrets")));
    JobSpec good = spec();
    good.dataset.train = {base_ / "root/inside/train.jsonl"};
    good.output = base_ / "root/door/../inside/out";  // as the kernel reads it: outside/../inside, which is not there
    EXPECT_THAT(refused(good), ElementsAre("/output"));
}

TEST_F(Paths, PatternsAreWhatTheyMatch) {
    JobSpec one = spec();
    one.dataset.train = {base_ / "root/data/*.jsonl"};
    EXPECT_THAT(refused(one), IsEmpty());
    fs::create_symlink(base_ / "outside/secrets/key.jsonl", base_ / "root/data/more.jsonl");
    EXPECT_THAT(refused(one), ElementsAre("/dataset/train"));
    one.dataset.train = {base_ / "outside/*/none*.jsonl"};
    EXPECT_THAT(refused(one), ElementsAre("/dataset/train"));
    one.dataset.train = {base_ / "ro?t/data/train.jsonl"};
    EXPECT_THAT(refused(one), ElementsAre("/dataset/train")) << "a pattern looks into folders outside";
}

TEST_F(Paths, F4APatternIsSearchedForOnlyWhereItMayBegin) {
    for (const char* below : {"a", "b", "c", "d"}) {
        for (const char* root : {"root", "outside"}) {
            fs::create_directories(base_ / root / below);
            fs::create_directory_symlink("..", base_ / root / below / "up");  // in circles
        }
    }
    const std::string wide = "*/up/*/up/*/up/*/up/*/up/*/up/*/up/*/x";  // more than 10,000 folders
    const auto detail = [&](const fs::path& pattern) {
        JobSpec asked = spec();
        asked.dataset.train = {pattern};
        PatternBudget budget = PatternBudget::of_a_request();
        budget.deadline.reset();  // a machine that is slow enough would run out of time first
        const auto found = PathRule(options()).check(asked, budget).violations;
        return found.empty() ? std::string() : found.at(0).pointer + " " + found.at(0).detail;
    };
    EXPECT_THAT(detail(base_ / "outside" / wide), HasSubstr("/dataset/train '" + (base_ / "outside").string()));
    EXPECT_THAT(detail(base_ / "outside" / wide), HasSubstr("is not below a folder that specs may name"));
    EXPECT_THAT(detail("/proc/self/task/*/root/*/*/*/*"), HasSubstr("is not below"));
    EXPECT_THAT(detail(base_ / "root" / wide), HasSubstr("the pattern looks into too many folders"));
    JobSpec both = spec();  // one budget for all patterns of a spec
    both.dataset.train.assign(40, base_ / "root/*/up/*/up/*/up/*/up/*/x");
    EXPECT_THAT(refused(both), Not(IsEmpty()));
    both.dataset.train.resize(1);
    EXPECT_THAT(refused(both), IsEmpty());
}

TEST_F(Paths, F2NothingThatAJobWritesHoldsARootOrTheServicesFolders) {
    fs::create_directories(base_ / "root/service/outputs");
    fs::create_directory_symlink(base_ / "root", base_ / "root/models/up");
    PathRuleOptions nested{.roots = {base_ / "root", base_ / "root/data"}, .data_dir = base_ / "root/service"};
    nested.shared = {base_ / "root/service/outputs"};
    const auto with = [&](void (*set)(JobSpec&, const std::string&), const fs::path& path) {
        JobSpec asked = spec();
        set(asked, path.string());
        return refused(asked, nested);
    };
    for (const char* path : {"root", "root/.", "root/data", "root/models/up", "root/service", "root/service/outputs"}) {
        EXPECT_THAT(with([](JobSpec& spec, const std::string& to) { spec.output = to; }, base_ / path),
                    ElementsAre("/output"))
            << path;
        EXPECT_THAT(with([](JobSpec& spec, const std::string& to) { spec.checkpoint.dir = to; }, base_ / path),
                    ElementsAre("/checkpoint/dir"))
            << path;
        EXPECT_THAT(with([](JobSpec& spec, const std::string& to) { spec.metrics.tensorboard_dir = to; }, base_ / path),
                    ElementsAre("/metrics/tensorboard_dir"))
            << path;
        EXPECT_THAT(with(
                        [](JobSpec& spec, const std::string& to) {
                            spec.teachers[""].store = to;
                            spec.teacher()->endpoints = {"http://teacher:1"};
                        },
                        base_ / path),
                    ElementsAre("/teacher/store"))
            << path;
    }
    for (const char* path : {"root/out", "root/data/out", "root/service/outputs/job-1"}) {
        EXPECT_THAT(with([](JobSpec& spec, const std::string& to) { spec.output = to; }, base_ / path), IsEmpty())
            << path;
    }
}

TEST_F(Paths, TheServicesOwnFilesAreNobodys) {
    PathRuleOptions all{.roots = {base_}, .data_dir = base_ / "service"};
    for (const char* own : {"service", "service/keys.json", "service/jobs.sqlite", "service/jobs.sqlite-wal",
                            "service/launcher/job-1.token", "service/audit.jsonl.1", "service/logs/x", "service/lock",
                            "service/files/file-1/data"}) {
        JobSpec bad = spec();
        bad.metrics.jsonl_file = base_ / own;
        EXPECT_THAT(refused(bad, all), ElementsAre("/metrics/jsonl_file")) << own;
    }
    JobSpec good = spec();
    good.output = base_ / "service/outputs/job-1";
    good.metrics.jsonl_file = base_ / "service/lockers/logs.jsonl";
    EXPECT_THAT(refused(good, all), IsEmpty());
}

TEST_F(Paths, WhatTheServiceHasPutInItselfIsAllowedUnderItsOwnName) {
    PathRuleOptions options{.roots = {base_ / "root"}, .data_dir = base_ / "service"};
    const fs::path sent = base_ / "service/files/file-1";
    fs::create_directories(sent);
    fs::create_symlink(sent, base_ / "root" / "to-files");
    fs::create_symlink(base_ / "service", sent / "out");
    JobSpec given = spec();
    given.metrics.jsonl_file = sent / "data";
    EXPECT_THAT(refused(given, options), ElementsAre("/metrics/jsonl_file"));
    options.given = {base_ / "service/files"};
    EXPECT_THAT(refused(given, options), IsEmpty());
    for (const auto& led_there : {base_ / "root/to-files/data", sent / "out/keys.json", sent / "../../keys.json",
                                  base_ / "service/keys.json"}) {
        given.metrics.jsonl_file = led_there;
        EXPECT_THAT(refused(given, options), ElementsAre("/metrics/jsonl_file")) << led_there;
    }
}

TEST_F(Paths, F3AWorkerMayOpenWhatItsSpecMayNameAndOfTheServiceOnlyWhatItWasGiven) {
    PathRuleOptions options{.roots = {base_ / "root"}, .data_dir = base_ / "service"};
    options.given = {base_ / "service/files", base_ / "service/outputs"};
    JobSpec job = spec();
    job.output = base_ / "service/outputs/job-1";
    job.dataset.train = {base_ / "service/files/file-1/data"};
    const FileRule rule = PathRule(options).rule_of(job).value();
    const auto why = [&rule](const fs::path& path) { return complaint_about(path, resolved_path(path), rule); };
    for (const char* path : {"root/models/student/config.json", "service/files/file-1/data", "service/outputs/job-1",
                             "service/outputs/job-1/checkpoints"}) {
        EXPECT_EQ(why(base_ / path), "") << path;
    }
    for (const char* path : {"outside/secrets/key.jsonl", "service/files/file-2/data", "service/outputs/job-2",
                             "service/outputs/job-10", "service/keys.json"}) {
        EXPECT_THAT(why(base_ / path), HasSubstr("is not below a folder that specs may name")) << path;
    }
    options.roots.push_back(base_);
    const FileRule wide = PathRule(options).rule_of(job).value();
    const fs::path keys = base_ / "service/keys.json";
    EXPECT_THAT(complaint_about(keys, resolved_path(keys), wide), HasSubstr("is a file of the service itself"));
    options.roots.clear();
    EXPECT_FALSE(PathRule(options).rule_of(job)) << "the rule is not in force";
}

TEST_F(Paths, WithoutRootsTheRuleHoldsWhereItIsNeeded) {
    bool needed = false;
    PathRuleOptions options;
    options.needed = [&needed] { return needed; };
    options.otherwise = {base_ / "root"};
    JobSpec bad = spec();
    bad.output = "/anywhere";
    EXPECT_THAT(refused(bad, options), IsEmpty());
    EXPECT_THAT(refused(bad, {}), IsEmpty());
    needed = true;
    EXPECT_THAT(refused(bad, options), ElementsAre("/output"));
    EXPECT_THAT(refused(spec(), options), IsEmpty());
}

}  // namespace
}  // namespace distilld
