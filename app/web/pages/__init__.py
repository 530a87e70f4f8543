"""What people see in a browser.

home           the front page, signing up, asking for a link
archive        a paper's page, search, the papers of a day, the most voted of a week
subscriber     what a signed link lets its subscriber do
feedback       likes, dislikes, pasted papers
paper_actions  follow an author, mute a word
feeds          Atom and JSON Feed
robots         robots.txt and the sitemap
"""
