#include "server/jobs/path_claims.hpp"

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
        table_.claim("a", {{{"/work/alice/s", PathUse::writes, "/output"},
                            {"/work/data/train.jsonl", PathUse::reads, "/dataset/train"},
                            {"/work/more/*/part-?.jsonl", PathUse::reads, "/dataset/eval"},
                            {"/work/store", PathUse::shares, "/teacher/store"}},
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
             {"/work/alice/s", "/work/alice/s/checkpoints", "/work/alice/s/a/b", "/work/alice", "/work", "/"}) {
            EXPECT_EQ(standing(writes(path, owner)), "a: /work/alice/s") << owner << " " << path;
        }
        for (const char* path : {"/work/alice/s2", "/work/alice/sibling", "/work/alices", "/other"}) {
            EXPECT_EQ(standing(writes(path, owner)), "") << owner << " " << path;
        }
        EXPECT_EQ(standing(claims(PathUse::shares, "/work/alice/s/store", owner)), "a: /work/alice/s");
    }
    PathClaims of_an_admin = writes("/work/alice/s/checkpoints", "ops");
    of_an_admin.is_admin = true;
    EXPECT_EQ(standing(of_an_admin), "a: /work/alice/s") << "two workers in one folder are nobody's wish";
}

TEST_F(Claims, F5NobodyElseWritesWhatAnUnfinishedJobReads) {
    for (const char* path : {"/work/data/train.jsonl", "/work/data", "/work/data/train.jsonl/x"}) {
        EXPECT_EQ(standing(writes(path, "bob")), "a: /work/data/train.jsonl") << path;
        EXPECT_EQ(standing(writes(path, "alice")), "") << path << ": her own sequence of jobs goes on";
    }
    for (const char* path :
         {"/work/more/x/part-1.jsonl", "/work/more/x", "/work/more", "/work/more/x/part-1.jsonl/y"}) {
        EXPECT_EQ(standing(writes(path, "bob")), "a: /work/more/*/part-?.jsonl") << path;
    }
    for (const char* path : {"/work/more/x/part-10.jsonl", "/work/more/x/student", "/work/data/eval.jsonl"}) {
        EXPECT_EQ(standing(writes(path, "bob")), "") << path;
    }
}

TEST_F(Claims, F5AJobMayReadWhatAnotherIsStillWriting) {
    EXPECT_EQ(standing(claims(PathUse::reads, "/work/alice/s", "bob")), "");
    EXPECT_EQ(standing(claims(PathUse::reads, "/work/store", "bob")), "");
}

TEST_F(Claims, F5WhoReadsAnothersFolderDoesNotTakeItFromItsMaker) {
    table_.claim("b", claims(PathUse::reads, "/work/alice/s", "bob"));
    table_.end("a");
    EXPECT_EQ(standing(writes("/work/alice/s", "alice")), "");
    EXPECT_EQ(standing(writes("/work/alice/s", "eve")), "b: /work/alice/s");
}

TEST_F(Claims, F5AStoreIsFilledBySeveral) {
    EXPECT_EQ(standing(claims(PathUse::shares, "/work/store", "bob")), "");
    EXPECT_EQ(standing(claims(PathUse::shares, "/work/store/below", "bob")), "a: /work/store");
    EXPECT_EQ(standing(writes("/work/store", "alice")), "a: /work/store");
    table_.end("a");
    EXPECT_EQ(standing(claims(PathUse::shares, "/work/store", "bob")), "");
    EXPECT_EQ(standing(writes("/work/store", "bob")), "a (ended): /work/store");
}

TEST_F(Claims, F5WhatAJobHasWrittenStaysItsOwnersUntilItIsForgotten) {
    table_.end("a");
    for (const char* path : {"/work/alice/s", "/work/alice/s/checkpoints", "/work/alice"}) {
        EXPECT_EQ(standing(writes(path, "bob")), "a (ended): /work/alice/s") << path;
        EXPECT_EQ(standing(writes(path, "alice")), "") << path;
        PathClaims of_an_admin = writes(path, "ops");
        of_an_admin.is_admin = true;
        EXPECT_EQ(standing(of_an_admin), "") << path;
    }
    EXPECT_EQ(standing(writes("/work/data/train.jsonl", "bob")), "") << "it reads no more";
    table_.forget("a");
    EXPECT_EQ(standing(writes("/work/alice/s", "bob")), "");
}

TEST_F(Claims, AJobIsNotInItsOwnWay) {
    EXPECT_FALSE(table_.conflict(writes("/work/alice/s", "alice"), "a"));
    table_.claim("a", writes("/elsewhere", "alice"));
    EXPECT_EQ(standing(writes("/work/alice/s", "bob")), "");
    EXPECT_EQ(standing(writes("/elsewhere/x", "bob")), "a: /elsewhere");
    EXPECT_EQ(table_.writer_of("/elsewhere"), "a");
    EXPECT_FALSE(table_.writer_of("/work/alice/s"));
}

TEST_F(Claims, WhatCanBeWaitedForIsSaidFirst) {
    table_.end("a");
    table_.claim("c", writes("/work/alice/s/below", "carl"));
    EXPECT_EQ(standing(writes("/work/alice/s", "bob")), "c: /work/alice/s/below");
}

}  // namespace
}  // namespace distilld
