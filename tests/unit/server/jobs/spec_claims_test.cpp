#include "server/jobs/checks/spec_claims.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "api/spec_fields.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;
using api::PathUse;
using ::testing::Contains;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class SpecClaims : public ::testing::Test {
  protected:
    SpecClaims() {
        spec_.student.model = base_ / "model";
        spec_.dataset.train = {base_ / "data/*.jsonl"};
        spec_.output = base_ / "out";
    }
    [[nodiscard]] PathClaim claim(const char* path, PathUse use, const char* pointer) const {
        return {(base_ / path).string(), use, pointer};
    }

    test::TemporaryFolder folder_;
    fs::path base_ = fs::canonical(folder_.path());
    JobSpec spec_;
};

TEST_F(SpecClaims, F5AreAllThatTheSpecNamesTogether) {
    spec_.checkpoint.dir = base_ / "checkpoints";
    spec_.metrics.jsonl_file = base_ / "figures.jsonl";
    spec_.metrics.tensorboard_dir = base_ / "tb";
    EXPECT_THAT(claims_of(spec_), UnorderedElementsAre(claim("model", PathUse::reads, "/student/model"),
                                                       claim("data/*.jsonl", PathUse::reads, "/dataset/train"),
                                                       claim("out", PathUse::writes, "/output"),
                                                       claim("checkpoints", PathUse::writes, "/checkpoint/dir"),
                                                       claim("figures.jsonl", PathUse::writes, "/metrics/jsonl_file"),
                                                       claim("tb", PathUse::writes, "/metrics/tensorboard_dir")));
}

TEST_F(SpecClaims, F5FollowLinksThatOfTheCheckpointsIncluded) {
    fs::create_directories(base_ / "alice/checkpoints");
    fs::create_directories(base_ / "out");
    fs::create_directory_symlink(base_ / "alice/checkpoints", base_ / "out/checkpoints");
    fs::create_directory_symlink(base_ / "alice", base_ / "door");
    spec_.metrics.tensorboard_dir = base_ / "door/tb";
    EXPECT_THAT(claims_of(spec_), Contains(claim("alice/checkpoints", PathUse::writes, "/output")));
    EXPECT_THAT(claims_of(spec_), Contains(claim("alice/tb", PathUse::writes, "/metrics/tensorboard_dir")));
}

TEST_F(SpecClaims, F5AStoreIsSharedByThoseThatFillItAndReadByThoseThatFollowIt) {
    spec_.teachers[""].store = (base_ / "store").string();
    EXPECT_THAT(claims_of(spec_), Contains(claim("store", PathUse::reads, "/teacher/store")));
    spec_.teacher()->endpoints = {"http://teacher:1"};
    spec_.teacher()->cache = TeacherCache::read;
    EXPECT_THAT(claims_of(spec_), Contains(claim("store", PathUse::reads, "/teacher/store")));
    spec_.teacher()->cache = TeacherCache::readwrite;
    EXPECT_THAT(claims_of(spec_), Contains(claim("store", PathUse::shares, "/teacher/store")));
    spec_.kind = JobKind::generate;
    spec_.output = spec_.teacher()->store;
    PathClaim own = claim("store", PathUse::shares, "/teacher/store");
    own.is_output = true;
    EXPECT_THAT(claims_of(spec_), Contains(own));
    EXPECT_THAT(claims_of(spec_), Not(Contains(claim("store", PathUse::writes, "/output"))));
    JobSpec several = spec_;
    several.kind = JobKind::train;
    several.teachers["b"] = *spec_.teacher();
    several.teachers.erase("");
    EXPECT_THAT(claims_of(several), Contains(claim("store", PathUse::shares, "/teachers/b/store")));
}

TEST_F(SpecClaims, F5WhatAFieldIsUsedForStandsInItsRow) {
    std::map<std::string, PathUse> written;
    JobSpec whole;
    whole.teachers[""];
    for (const auto& field : api::spec_table().fields) {
        if (!field.kind.paths(whole).empty() && field.kind->path_use() != PathUse::reads) {
            written.emplace(field.pointer, field.kind->path_use().value());
        }
    }
    EXPECT_THAT(written, UnorderedElementsAre(std::pair("/output", PathUse::writes),
                                              std::pair("/checkpoint/dir", PathUse::writes),
                                              std::pair("/metrics/jsonl_file", PathUse::writes),
                                              std::pair("/metrics/tensorboard_dir", PathUse::writes),
                                              std::pair("/teacher/store", PathUse::shares)));
}

}  // namespace
}  // namespace distilld
