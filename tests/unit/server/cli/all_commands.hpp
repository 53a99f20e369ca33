#pragma once

#include <string>
#include <vector>

namespace distilld::test {

/// Each command and subcommand of the program, as its words; the program itself first.
inline const std::vector<std::vector<std::string>> kAllCommands{{},
                                                                {"serve"},
                                                                {"run"},
                                                                {"generate"},
                                                                {"teacher"},
                                                                {"jobs"},
                                                                {"jobs", "submit"},
                                                                {"jobs", "list"},
                                                                {"jobs", "get"},
                                                                {"jobs", "watch"},
                                                                {"jobs", "cancel"},
                                                                {"jobs", "pause"},
                                                                {"jobs", "resume"},
                                                                {"jobs", "checkpoint"},
                                                                {"jobs", "set"},
                                                                {"jobs", "delete"},
                                                                {"jobs", "checkpoints"},
                                                                {"jobs", "metrics"},
                                                                {"jobs", "logs"},
                                                                {"jobs", "download"},
                                                                {"keys"},
                                                                {"keys", "add"},
                                                                {"keys", "list"},
                                                                {"keys", "revoke"},
                                                                {"store"},
                                                                {"store", "inspect"},
                                                                {"store", "verify"},
                                                                {"store", "export"},
                                                                {"store", "import"},
                                                                {"spec"},
                                                                {"spec", "init"},
                                                                {"spec", "check"},
                                                                {"spec", "explain"},
                                                                {"tokenize"},
                                                                {"nodes"},
                                                                {"healthcheck"},
                                                                {"completion"},
                                                                {"man"}};

}  // namespace distilld::test
