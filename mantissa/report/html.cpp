#include "mantissa/report/html.h"

#include "mantissa/base/version.h"

namespace mantissa::inline v0::html {

namespace {

// Colours c0 ... c7 tell series apart; each has its lighter twin for dark pages. A bar of a chart is a grid
// of label, bar and text. Of two drawings of the same, .broad and .narrow, the one that fits is shown.
constexpr std::string_view style = R"(
:root{color-scheme:light dark;--page:#fff;--ink:#1a202c;--faint:#5a6676;--line:#cbd5e0;--band:#edf2f7;
--c0:#2b6cb0;--c1:#c05621;--c2:#2f855a;--c3:#b83280;--c4:#6b46c1;--c5:#8a6d1a;--c6:#0e7490;--c7:#4a5568}
@media(prefers-color-scheme:dark){:root{--page:#14181f;--ink:#e5e9f0;--faint:#9aa5b5;--line:#3a4452;--band:#222935;
--c0:#63a4e8;--c1:#f0935a;--c2:#5cc48a;--c3:#ec7fbd;--c4:#a78bfa;--c5:#d9b84a;--c6:#4fc3dc;--c7:#a0aec0}}
body{font:15px/1.5 sans-serif;margin:24px auto;padding:0 16px;max-width:1080px;background:var(--page);color:var(--ink)}
h1{font-size:24px;margin:0 0 8px}h2{font-size:18px;margin:32px 0 8px}h3{font-size:15px;margin:16px 0 4px}
p{margin:6px 0}summary{cursor:pointer}.note{color:var(--faint);font-size:13px}code,pre{font:12px/1.4 monospace}pre{overflow-x:auto}
code{overflow-wrap:anywhere}.sample{white-space:pre-wrap}.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:13px;margin:10px 0}th,td{padding:3px 16px 3px 0;text-align:left;vertical-align:top}
th{color:var(--faint);font-weight:normal;border-bottom:1px solid var(--line);vertical-align:bottom}
td{border-bottom:1px solid var(--band)}
td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:8px 40px}
.bars{display:grid;grid-template-columns:max-content 1fr max-content;gap:6px 12px;align-items:center;font-size:13px}
.bars>div{display:flex;height:18px;background:var(--band)}.bars i{display:block;height:100%}
.bars b{font-weight:normal;text-align:right;font-variant-numeric:tabular-nums}
.key{font-size:13px;margin:6px 0}.key span{margin-right:18px;white-space:nowrap}
.key i{display:inline-block;width:12px;height:12px;margin-right:6px;vertical-align:-1px}
svg{width:100%;font:12px sans-serif;display:block}svg text{fill:var(--ink)}svg .faint{fill:var(--faint)}
svg .axis{stroke:var(--line);fill:none}svg .roof{stroke:var(--faint);fill:none}svg .curve{fill:none}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}
.c4{--c:var(--c4)}.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}
i[class]{background:var(--c)}svg [class^=c]{stroke:var(--c)}svg [class^=fill]{fill:var(--c);stroke:none}
svg rect[class^=fill]{stroke:var(--page);stroke-width:.4}
.narrow{display:none}@media(max-width:700px){.broad{display:none}.narrow{display:block}}
)";

std::string cells(const char* tag, const Row& row, const std::vector<bool>& right) {
    std::string line = "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
        line += std::string("<") + tag + (right[i] ? " class='n'>" : ">");
        line += escaped(row[i]) + "</" + tag + ">";
    }
    return line + "</tr>\n";
}

}  // namespace

std::string escaped(std::string_view text) {
    std::string safe;
    for (const char c : text) {
        switch (c) {
            case '<':
                safe += "&lt;";
                break;
            case '>':
                safe += "&gt;";
                break;
            case '&':
                safe += "&amp;";
                break;
            case '"':
                safe += "&quot;";
                break;
            case '\'':
                safe += "&#39;";
                break;
            default:
                safe += c;
        }
    }
    return safe;
}

std::string page(std::string_view title, const std::string& body, int reload_seconds) {
    const std::string heading = escaped(title);
    const std::string reload =
        reload_seconds > 0 ? "<meta http-equiv='refresh' content='" + std::to_string(reload_seconds) + "'>"
                           : "";
    return "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
           "<meta name='viewport' content='width=device-width, initial-scale=1'>" +
           reload + "<title>" + heading + "</title><style>" + std::string(style) +
           "</style></head><body>\n<h1>" + heading + "</h1>\n" + body + "</body></html>\n";
}

std::string table(const Grid& grid) {
    const std::vector<bool> right = grid.numbers();
    std::string text = "<div class='wide'><table>\n" + cells("th", grid.headings, right);
    for (const Row& row : grid.rows) text += cells("td", row, right);
    return text + "</table></div>\n";
}

std::string footer(const std::string& command) {
    return std::string("<p class='note'>mantissa ") + version() + ", commit " + escaped(commit()) +
           ": <code>" + escaped(command) + "</code></p>\n";
}

}  // namespace mantissa::html
