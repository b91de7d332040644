"""Labels in the language of the browser: English, or Japanese where a label has a row here."""

from __future__ import annotations

from collections.abc import Callable

LANGUAGES = ("en", "ja")

JAPANESE = {
    # menu
    "Summary": "概要", "Netron": "Netron", "Node": "ノード", "Logs": "ログ", "Perfetto UI": "Perfetto UI",
    "Chrome Tracing": "Chrome Tracing", "HTML Tools": "HTML ツール", "Memory": "メモリ", "Search": "探索",
    "Compare": "比較",
    "Accuracy": "精度", "Advice": "助言", "Store": "ストア", "Files": "ファイル", "Layout": "レイアウト",
    "Not found": "見つかりません",
    "Menu": "メニュー", "Skip to the content": "本文へ移動", "Light or dark": "明暗の切り替え", "More": "その他",
    "Codegen Dashboard": "Codegen Dashboard", "Back to the codegen_dir": "codegen_dir に戻る",
    # headings
    "Compile statuses": "コンパイル状況", "Layers": "レイヤ", "Perf stats": "性能統計", "Options": "オプション",
    "Hardware settings": "ハードウェア設定", "Command": "コマンド",
    "Layers that take most steps": "ステップ数の多いレイヤ",
    "Roofline": "ルーフライン", "Assumed numbers": "仮定した数値", "Instructions": "命令", "Values": "値",
    "Attributes": "属性",
    "Candidates": "候補", "Instruction mix": "命令の内訳", "Where the steps go": "ステップの内訳",
    "Segments": "セグメント",
    "Local memories": "ローカルメモリ", "Notes of the scheduler": "スケジューラの注記",
    "Values in local memory": "ローカルメモリ上の値", "Values in DRAM": "DRAM 上の値", "DRAM over time": "DRAM の時間変化",
    "Decisions": "決定",
    "Progress": "経過", "Totals": "合計", "Options that differ": "異なるオプション", "Builds": "ビルド",
    "Artifacts": "生成物",
    "Why it was built": "ビルドの理由", "What limits the layers": "レイヤの律速要因", "The chip": "チップ全体",
    "The L1B of the element": "要素のある L1B", "Long words of the PE": "PE の長語", "Levels": "階層",
    "Element": "要素",
    "Timeline of this layer": "このレイヤの時間",
    # columns and tiles
    "Layer": "レイヤ", "Operator": "演算子", "Emitter": "エミッタ", "Dtype": "型", "Steps": "ステップ",
    "Time": "時間", "Share": "割合",
    "Bound by": "律速", "Of the bound": "律速に対する割合", "Operations": "演算数", "DRAM": "DRAM",
    "LM high water": "LM 最大使用量",
    "Moves": "転送数", "Stage": "段階", "Location": "位置", "Module": "モジュール", "Source": "ソース",
    "Phase": "フェーズ",
    "Status": "状態", "Why": "理由", "Key": "キー", "Option": "オプション", "Value": "値", "Origin": "由来",
    "Setting": "設定",
    "Inputs": "入力", "Outputs": "出力", "Instruction steps": "命令ステップ", "Operations per second": "毎秒演算数",
    "File": "ファイル",
    "Size": "サイズ", "What it is": "内容", "Shape": "形状", "Role": "役割", "On the board": "ボード上",
    "Instruction": "命令",
    "Count": "回数", "Meaning": "意味", "Reference": "参照", "Segment": "セグメント", "Kind": "種類",
    "Offset": "オフセット",
    "Written by": "書き込み元", "Last read by": "最後の読み手", "Steps alive": "生存ステップ", "Difference": "差",
    "Program": "プログラム",
    "Started": "開始", "Build": "ビルド", "Built": "構築", "From the store": "ストアから", "Artifact": "生成物",
    "Created": "作成",
    "On disk": "ディスク上", "Level": "階層", "Takes": "担当",
    "Copies": "複製", "Used": "使用",
    "LW per group": "グループあたりの長語", "First word": "先頭語", "Words per PE": "PE あたりの語",
    "Reads": "読み出し回数", "Also in DRAM": "DRAM にも", "only in LM": "LM のみ", "DRAM too": "DRAM にも", "Turns": "実行回数",
    "Note of the scheduler": "スケジューラの注記", "Bytes, all groups": "全グループのバイト数", "Of DRAM": "DRAM に対する割合",
    "Shape of the value": "値の形状", "Made by / read by": "書き手・読み手",
    # controls
    "Filter": "絞り込み", "Copy as CSV": "CSV をコピー", "Copied": "コピーしました", "rows": "行", "of": "/",
    "Previous": "前へ",
    "Next": "次へ", "page": "ページ", "Follow": "追従", "All levels": "全レベル", "Show": "表示",
    "Download": "ダウンロード",
    "decompressed": "展開済み", "as stored": "保存形式", "Open in a tab of its own": "別のタブで開く",
    "Choose a file": "ファイルを選択",
    "Apply": "適用", "Nothing matches.": "該当なし。", "by": "別", "layers": "レイヤ", "nodes": "ノード",
    "lines": "行", "line": "行",
    "at most": "最大", "steps": "ステップ", "Previous layer": "前のレイヤ", "Next layer": "次のレイヤ",
    "holds data": "データ",
    "a copy": "複製", "nothing": "なし", "the element": "要素", "lies at": "の位置",
    "Open the original file": "元のファイルを開く",
    "Draw all the same": "それでも描く", "not there": "なし", "JSON": "JSON",
    # attributes
    "operator": "演算子", "emitter": "エミッタ", "dtype": "型", "bound": "律速", "stage of training": "学習の段階",
    "module path": "モジュール",
    "Layouts tried": "試したレイアウト", "Tried": "試行", "Outcome": "結果", "Why not": "不可の理由", "Lies in": "置き場所",
    "Scheduler": "スケジューラ", "Allowed": "許容", "Verdict": "判定", "Of the allowed": "許容に対する割合",
    "Max relative": "最大相対誤差", "Max absolute": "最大絶対誤差",
    "Mean absolute": "平均絶対誤差",
    "Elements": "要素数", "What else differs": "その他の違い", "Values in LM": "LM 上の値",
    "Layers on the host": "ホスト上のレイヤ",
    "Layers with most to save": "削減余地の大きいレイヤ",
    "At most saved": "最大削減", "not counted": "計数外", "measured": "実測",
    "Ranked by the steps that it could save, at most, of": "削減しうるステップ数 (上限) の順。全ステップ:",
    "The savings do not add up: they are upper limits of the same steps.": "上限値なので合計はできません。",
    "Nothing stands out: no single change could save 1 % of the steps.": "1 % 以上削減できる変更は見当たりません。",
    "layers without steps (views) are not shown": "ステップのないレイヤ (ビュー) は省略",
    # badges
    "kept": "採用", "dropped": "不採用", "impossible": "不可", "within": "許容内", "beyond": "許容外", "host": "ホスト",
    "compute": "演算", "moves": "転送", "built": "構築", "cached": "再利用", "failed": "失敗", "default": "既定",
    "direct": "直接指定",
    "forward": "順伝播", "backward": "逆伝播", "after backward": "逆伝播後", "input": "入力", "output": "出力",
    "constant": "定数",
    "work": "作業", "option_json": "option_json", "ok": "成功",
    # notes
    "at 750 MHz": "750 MHz にて", "per PE, of 32 KiB": "PE あたり (全 32 KiB)",
    "Point at a rectangle, or go to it with the tab key.": "四角形にポインタを合わせるか Tab キーで移動",
    "simulated, the whole program": "プログラム全体のシミュレーション値",
    "nodes of the compiled graph": "コンパイル後のグラフのノード",
    "floating-point operations of the graph": "計算グラフの浮動小数点演算数", "achieved": "実効値",
    "moved from and to DRAM": "DRAM との転送量",
    "of the steps; the rest waits for moves": "のステップ。残りは転送待ち",
}  # fmt: skip


def language_of(header: str) -> str:
    """The first known language of an Accept-Language header by its weights."""
    wanted = []
    for at, part in enumerate(header[:500].split(",")):
        tag, _semi, weight = part.strip().partition(";q=")
        try:
            wanted.append((-float(weight or 1), at, tag.split("-")[0].lower()))
        except ValueError:
            continue
    return next((tag for weight, _at, tag in sorted(wanted) if tag in LANGUAGES and weight < 0), "en")


def translator(language: str) -> Callable[[str], str]:
    """A function from an English label to the label of a language."""
    if language == "ja":
        return lambda text: JAPANESE.get(text, text)
    return lambda text: text
