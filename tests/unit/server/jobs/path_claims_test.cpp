#include "server/jobs/checks/path_claims.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/jobs/job_table_text.hpp"

namespace distilld {
namespace {

using api::PathUse;
using test::writes;

PathClaims claims(PathUse use, const std::string& path, const std::string& owner) {
    return {{{path, use, "/field"}}, owner};
}

/// Of Alice: a job that writes, reads a file, reads what a pattern matches, and fills a store.
class Claims : public ::testing::Test {
  protected:
    Claims() {
        table_.claim("a", {{{"/base/alice/s", PathUse::writes, "/output"},
                            {"/base/data/train.jsonl", PathUse::reads, "/dataset/train"},
                            {"/base/more/*/part-?.jsonl", PathUse::reads, "/dataset/eval"},
                            {"/base/store", PathUse::shares, "/teacher/store"}},
                           "alice"});
    }
    [[nodiscard]] std::string standing(const PathClaims& wanted) const {
        const auto conflict = table_.conflict(wanted);
        return conflict ? conflict->job + (conflict->ended ? " (ended): " : ": ") + conflict->held.path : "";
    }
    ClaimTable table_;
};

TEST_F(Claims, F5NobodyWritesWhereAnUnfinishedJobWritesNorAboveNorBelow) {
    for (const char* owner : {"alice", "bob"}) {
        for (const char* path :
             {"/base/alice/s", "/base/alice/s/checkpoints", "/base/alice/s/a/b", "/base/alice", "/base", "/"}) {
            EXPECT_EQ(standing(writes(path, owner)), "a: /base/alice/s") << owner << " " << path;
        }
        for (const char* path : {"/base/alice/s2", "/base/alice/sibling", "/base/alices", "/other"}) {
            EXPECT_EQ(standing(writes(path, owner)), "") << owner << " " << path;
        }
        EXPECT_EQ(standing(claims(PathUse::shares, "/base/alice/s/store", owner)), "a: /base/alice/s");
    }
    PathClaims of_an_admin = writes("/base/alice/s/checkpoints", "ops");
    of_an_admin.is_admin = true;
    EXPECT_EQ(standing(of_an_admin), "a: /base/alice/s") << "two workers in one folder are nobody's wish";
}

TEST_F(Claims, F5NobodyElseWritesWhatAnUnfinishedJobReads) {
    for (const char* path : {"/base/data/train.jsonl", "/base/data", "/base/data/train.jsonl/x"}) {
        EXPECT_EQ(standing(writes(path, "bob")), "a: /base/data/train.jsonl") << path;
        EXPECT_EQ(standing(writes(path, "alice")), "") << path << ": her own sequence of jobs goes on";
    }
    for (const char* path :
         {"/base/more/x/part-1.jsonl", "/base/more/x", "/base/more", "/base/more/x/part-1.jsonl/y"}) {
        EXPECT_EQ(standing(writes(path, "bob")), "a: /base/more/*/part-?.jsonl") << path;
    }
    for (const char* path : {"/base/more/x/part-10.jsonl", "/base/more/x/student", "/base/data/eval.jsonl"}) {
        EXPECT_EQ(standing(writes(path, "bob")), "") << path;
    }
}

TEST_F(Claims, F5AJobMayReadWhatAnotherIsStillWriting) {
    EXPECT_EQ(standing(claims(PathUse::reads, "/base/alice/s", "bob")), "");
    EXPECT_EQ(standing(claims(PathUse::reads, "/base/store", "bob")), "");
}

TEST_F(Claims, F5WhoReadsAnothersFolderDoesNotTakeItFromItsMaker) {
    table_.claim("b", claims(PathUse::reads, "/base/alice/s", "bob"));
    table_.end("a");
    EXPECT_EQ(standing(writes("/base/alice/s", "alice")), "");
    EXPECT_EQ(standing(writes("/base/alice/s", "eve")), "b: /base/alice/s");
}

TEST_F(Claims, F5AStoreIsFilledBySeveral) {
    EXPECT_EQ(standing(claims(PathUse::shares, "/base/store", "bob")), "");
    EXPECT_EQ(standing(claims(PathUse::shares, "/base/store/below", "bob")), "a: /base/store");
    EXPECT_EQ(standing(writes("/base/store", "alice")), "a: /base/store");
    table_.end("a");
    EXPECT_EQ(standing(claims(PathUse::shares, "/base/store", "bob")), "");
    EXPECT_EQ(standing(writes("/base/store", "bob")), "a (ended): /base/store");
}

TEST_F(Claims, AStoreIsTheOutputOfOneUnfinishedJob) {
    PathClaims output = claims(PathUse::shares, "/base/other", "alice");
    output.paths[0].is_output = true;
    table_.claim("g", output);
    EXPECT_EQ(standing(output), "g: /base/other");
    EXPECT_EQ(standing(claims(PathUse::shares, "/base/other", "alice")), "")
        << "a job with a teacher that fills it too";
    table_.end("g");
    EXPECT_EQ(standing(output), "");
}

TEST_F(Claims, F5WhatAJobHasWrittenStaysItsOwnersUntilItIsForgotten) {
    table_.end("a");
    for (const char* path : {"/base/alice/s", "/base/alice/s/checkpoints", "/base/alice"}) {
        EXPECT_EQ(standing(writes(path, "bob")), "a (ended): /base/alice/s") << path;
        EXPECT_EQ(standing(writes(path, "alice")), "") << path;
        PathClaims of_an_admin = writes(path, "ops");
        of_an_admin.is_admin = true;
        EXPECT_EQ(standing(of_an_admin), "") << path;
    }
    EXPECT_EQ(standing(writes("/base/data/train.jsonl", "bob")), "") << "it reads no more";
    table_.forget("a");
    EXPECT_EQ(standing(writes("/base/alice/s", "bob")), "");
}

TEST_F(Claims, AJobIsNotInItsOwnWay) {
    EXPECT_FALSE(table_.conflict(writes("/base/alice/s", "alice"), "a"));
    table_.claim("a", writes("/elsewhere", "alice"));
    EXPECT_EQ(standing(writes("/base/alice/s", "bob")), "");
    EXPECT_EQ(standing(writes("/elsewhere/x", "bob")), "a: /elsewhere");
    EXPECT_EQ(standing(writes("/elsewhere", "bob")), "a: /elsewhere");
}

TEST_F(Claims, WhatCanBeWaitedForIsSaidFirst) {
    table_.end("a");
    table_.claim("c", writes("/base/alice/s/below", "carl"));
    EXPECT_EQ(standing(writes("/base/alice/s", "bob")), "c: /base/alice/s/below");
}

}  // namespace
}  // namespace distilld
